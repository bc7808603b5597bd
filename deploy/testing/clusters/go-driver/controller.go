package main

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// frame is a message that nobody here reads.
type frame struct{ bytes []byte }

// frames hands messages on as they came.
type frames struct{}

func (frames) Name() string { return "proto" }

func (frames) Marshal(message any) ([]byte, error) { return message.(*frame).bytes, nil }

func (frames) Unmarshal(bytes []byte, message any) error {
	message.(*frame).bytes = append([]byte(nil), bytes...)
	return nil
}

// serveController hands each call to another controller, whose publish context it reduces to the one
// key that the Go driver gives: what EC2 is asked for is not what an upgrade in place is about.
func serveController(endpoint, backend string) error {
	connection, err := grpc.NewClient("passthrough:///"+backend,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dialUnix))
	if err != nil {
		return err
	}
	forward := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		request, reply := &frame{}, &frame{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		err := connection.Invoke(stream.Context(), method, request, reply,
			grpc.ForceCodec(frames{}), grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		if method == csi.Controller_ControllerPublishVolume_FullMethodName {
			if err := reduce(reply); err != nil {
				return err
			}
		}
		return stream.SendMsg(reply)
	}
	listener, err := listen(endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(forward))
	untilTerminated(server.Stop)
	return server.Serve(listener)
}

func reduce(reply *frame) error {
	published := &csi.ControllerPublishVolumeResponse{}
	if err := proto.Unmarshal(reply.bytes, published); err != nil {
		return fmt.Errorf("publish context: %w", err)
	}
	published.PublishContext = map[string]string{devicePath: published.PublishContext[devicePath]}
	bytes, err := proto.Marshal(published)
	reply.bytes = bytes
	return err
}
