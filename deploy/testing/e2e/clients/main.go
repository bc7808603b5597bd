// Command clients calls a driver's sockets with the gRPC clients that a cluster has, dialed exactly
// as they dial. Each prints what it was told on one line; a refusal ends it with status 1.
//
//	clients kubelet-registration SOCKET [REASON]   kubelet's plugin manager; REASON refuses
//	clients kubelet-csi SOCKET                     kubelet's CSI client
//	clients sidecar SOCKET                         the connection library of the stock sidecars
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const patience = 10 * time.Second

func main() {
	clients := map[string]func(context.Context, []string) (string, error){
		"kubelet-registration": kubeletRegistration,
		"kubelet-csi":          kubeletCSI,
		"sidecar":              sidecar,
	}
	if len(os.Args) < 3 || clients[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clients kubelet-registration|kubelet-csi|sidecar SOCKET [REASON]")
		os.Exit(64)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	told, err := clients[os.Args[1]](ctx, os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(told)
}

// byPath dials as kubelet does: the target is the bare path, and the dialer says that it is a unix
// socket.
func byPath(ctx context.Context, path string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", path)
		}),
	}, more...)
	// Deprecated, and what kubelet calls: NewClient reads the target and so the authority otherwise.
	return grpc.DialContext(ctx, path, options...)
}

// kubeletRegistration sets no authority, so that grpc-go makes one from the path.
func kubeletRegistration(ctx context.Context, args []string) (string, error) {
	conn, err := byPath(ctx, args[0], grpc.WithBlock())
	if err != nil {
		return "", fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	driver := registration.NewRegistrationClient(conn)
	info, err := driver.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return "", fmt.Errorf("GetInfo: %w", err)
	}
	status := &registration.RegistrationStatus{PluginRegistered: true}
	if len(args) > 1 {
		status = &registration.RegistrationStatus{Error: args[1]}
	}
	if _, err := driver.NotifyRegistrationStatus(ctx, status); err != nil {
		return "", fmt.Errorf("NotifyRegistrationStatus: %w", err)
	}
	return fmt.Sprintf("%s %s %s %v", info.Type, info.Name, info.Endpoint, info.SupportedVersions), nil
}

// kubeletCSI sets the authority that kubelet sets for calls of volumes.
func kubeletCSI(ctx context.Context, args []string) (string, error) {
	conn, err := byPath(ctx, args[0], grpc.WithAuthority("localhost"))
	if err != nil {
		return "", fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	info, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("NodeGetInfo: %w", err)
	}
	return info.NodeId, nil
}

// sidecar connects and probes as external-provisioner, -attacher, -resizer and -snapshotter do.
func sidecar(ctx context.Context, args []string) (string, error) {
	conn, err := connection.Connect(ctx, args[0], nil)
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	ready, err := rpc.Probe(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("Probe: %w", err)
	}
	if !ready {
		return "", errors.New("Probe: not ready")
	}
	name, err := rpc.GetDriverName(ctx, conn)
	if err != nil {
		return "", fmt.Errorf("GetDriverName: %w", err)
	}
	return name, nil
}
