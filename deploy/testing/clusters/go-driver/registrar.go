package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	registrationSocket = "/registration/" + driverName + "-reg.sock"
	credentials        = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(
	context.Context, *registration.InfoRequest,
) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: driverName, Endpoint: r.endpoint,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatal("kubelet refuses the driver: ", status.Error)
	}
	log.Print("kubelet has registered the driver")
	return &registration.RegistrationStatusResponse{}, nil
}

// register does what the stock node-driver-registrar does: it makes its socket, and removes the
// socket when the pod ends.
func register(endpoint string) error {
	listener, err := listen("unix:" + registrationSocket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{endpoint: endpoint})
	untilTerminated(func() {
		if err := os.Remove(registrationSocket); err != nil {
			log.Print(err)
		}
	})
	return server.Serve(listener)
}

// preStop asks for the node, as the Go driver does to know whether the node is drained.
func preStop() error {
	authority, err := os.ReadFile(credentials + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(credentials + "token")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	server := net.JoinHostPort(
		os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(
		http.MethodGet, "https://"+server+"/api/v1/nodes/"+os.Getenv("CSI_NODE_NAME"), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot ask for the node: %s", answer.Status)
	}
	return nil
}
