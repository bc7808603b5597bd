// A stand-in for the Go driver, for the scenario of an upgrade in place. On a node it does what that
// driver does there, with mount-utils, which that driver uses, and the distribution's programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

const driverName = "ebs.csi.aws.com"

func main() {
	log.SetFlags(log.LUTC | log.Ltime | log.Lmicroseconds)
	flags := flag.NewFlagSet("go-driver", flag.ExitOnError)
	endpoint := flags.String("endpoint", "unix:/csi/csi.sock", "CSI socket")
	backend := flags.String("backend", "", "CSI socket of the controller that does the work")
	registration := flags.String("kubelet-registration-path", "", "CSI socket as kubelet sees it")
	modes := map[string]func() error{
		"controller":    func() error { return serveController(*endpoint, *backend) },
		"node":          func() error { return serveNode(*endpoint) },
		"registrar":     func() error { return register(*registration) },
		"pre-stop-hook": preStop,
	}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		log.Fatal("usage: go-driver controller|node|registrar|pre-stop-hook [FLAGS]")
	}
	if err := flags.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	if err := modes[os.Args[1]](); err != nil {
		log.Fatal(err)
	}
}

// listen replaces what is at the path of a unix socket's URL.
func listen(endpoint string) (net.Listener, error) {
	parsed, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	path := parsed.Path + parsed.Opaque
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// logged writes one line for each call that names a volume: the method, the volume, the outcome.
func logged(
	ctx context.Context, request any, call *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	reply, err := handler(ctx, request)
	if named, ok := request.(interface{ GetVolumeId() string }); ok {
		method := call.FullMethod[strings.LastIndex(call.FullMethod, "/")+1:]
		outcome := "ok"
		if err != nil {
			outcome = fmt.Sprint("failed: ", err)
		}
		log.Print(method, " ", named.GetVolumeId(), " ", outcome)
	}
	return reply, err
}

// untilTerminated runs this once SIGTERM arrives, and ends the process.
func untilTerminated(end func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		end()
		os.Exit(0)
	}()
}

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(
	context.Context, *csi.GetPluginInfoRequest,
) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "v1.64.0"}, nil
}

func (identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	reply := &csi.GetPluginCapabilitiesResponse{}
	for _, one := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		reply.Capabilities = append(reply.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{
				Service: &csi.PluginCapability_Service{Type: one},
			},
		})
	}
	return reply, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
