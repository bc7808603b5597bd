package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
)

const (
	devicePath = "devicePath"
	metadata   = "http://169.254.169.254/latest/"
)

type node struct {
	csi.UnimplementedNodeServer
	mounter  *mount.SafeFormatAndMount
	instance string
	zone     string
}

func serveNode(endpoint string) error {
	instance, err := ask("meta-data/instance-id")
	if err != nil {
		return err
	}
	zone, err := ask("meta-data/placement/availability-zone")
	if err != nil {
		return err
	}
	listener, err := listen(endpoint)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterNodeServer(server, &node{
		mounter:  mount.NewSafeFormatAndMount(mount.New(""), exec.New()),
		instance: instance,
		zone:     zone,
	})
	return server.Serve(listener)
}

// ask reads instance metadata, version 2.
func ask(path string) (string, error) {
	request, err := http.NewRequest(http.MethodPut, metadata+"api/token", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("X-aws-ec2-metadata-token-ttl-seconds", "60")
	token, err := read(request)
	if err != nil {
		return "", err
	}
	request, err = http.NewRequest(http.MethodGet, metadata+path, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("X-aws-ec2-metadata-token", token)
	return read(request)
}

func read(request *http.Request) (string, error) {
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", request.URL, answer.Status)
	}
	return string(text), err
}

func (n *node) NodeGetInfo(
	context.Context, *csi.NodeGetInfoRequest,
) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: n.instance,
		// An m7i.large has 32, one for its root.
		MaxVolumesPerNode: 31,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{
			"topology.kubernetes.io/zone":   n.zone,
			"topology.ebs.csi.aws.com/zone": n.zone,
			"kubernetes.io/os":              "linux",
		}},
	}, nil
}

func (n *node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	reply := &csi.NodeGetCapabilitiesResponse{}
	for _, one := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		reply.Capabilities = append(reply.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: one}},
		})
	}
	return reply, nil
}

// device follows the link that EC2's device name is. Disks here have no serial to compare.
func device(context map[string]string) (string, error) {
	found, err := filepath.EvalSymlinks(context[devicePath])
	if err != nil {
		return "", status.Error(codes.NotFound, err.Error())
	}
	return found, nil
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}

func (n *node) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	done := &csi.NodeStageVolumeResponse{}
	if request.VolumeCapability.GetBlock() != nil {
		return done, nil
	}
	wanted := request.VolumeCapability.GetMount()
	fileSystem := strings.ToLower(wanted.FsType)
	if fileSystem == "" {
		fileSystem = "ext4"
	}
	options := append([]string{}, wanted.MountFlags...)
	if fileSystem == "xfs" && !slices.Contains(options, "nouuid") {
		options = append(options, "nouuid")
	}
	source, err := device(request.PublishContext)
	if err != nil {
		return nil, err
	}
	target := request.StagingTargetPath
	if err := os.MkdirAll(target, 0o755); err != nil {
		return nil, internal(err)
	}
	mounted, _, err := mount.GetDeviceNameFromMount(n.mounter, target)
	if err != nil {
		return nil, internal(err)
	}
	if mounted == source {
		return done, nil
	}
	var format []string
	if size := request.VolumeContext["blocksize"]; size != "" {
		format = append(format, "-b", size)
	}
	err = n.mounter.FormatAndMountSensitiveWithFormatOptions(
		source, target, fileSystem, options, nil, format)
	if err != nil {
		return nil, internal(err)
	}
	return done, internal(n.grow(source, target))
}

func (n *node) grow(source, mounted string) error {
	resizer := mount.NewResizeFs(n.mounter.Exec)
	needed, err := resizer.NeedResize(source, mounted)
	if err != nil || !needed {
		return err
	}
	_, err = resizer.Resize(source, mounted)
	return err
}

func (n *node) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	done := &csi.NodeUnstageVolumeResponse{}
	target := request.StagingTargetPath
	_, count, err := mount.GetDeviceNameFromMount(n.mounter, target)
	if err != nil || count == 0 {
		return done, internal(err)
	}
	return done, internal(mount.CleanupMountPoint(target, n.mounter, false))
}

func (n *node) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	options := []string{"bind"}
	if request.Readonly {
		options = append(options, "ro")
	}
	var err error
	if request.VolumeCapability.GetBlock() != nil {
		err = n.publishDevice(request, options)
	} else {
		err = n.publishDirectory(request, options)
	}
	return &csi.NodePublishVolumeResponse{}, err
}

func (n *node) publishDirectory(request *csi.NodePublishVolumeRequest, options []string) error {
	target, wanted := request.TargetPath, request.VolumeCapability.GetMount()
	for _, flag := range wanted.MountFlags {
		if !slices.Contains(options, flag) {
			options = append(options, flag)
		}
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return internal(err)
	}
	free, err := n.mounter.IsLikelyNotMountPoint(target)
	if err != nil || !free {
		return internal(err)
	}
	fileSystem := wanted.FsType
	if fileSystem == "" {
		fileSystem = "ext4"
	}
	return internal(n.mounter.Mount(request.StagingTargetPath, target, fileSystem, options))
}

func (n *node) publishDevice(request *csi.NodePublishVolumeRequest, options []string) error {
	source, err := device(request.PublishContext)
	if err != nil {
		return err
	}
	target := request.TargetPath
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return internal(err)
	}
	file, err := os.OpenFile(target, os.O_CREATE, 0o644)
	if err != nil {
		return internal(err)
	}
	file.Close()
	free, err := n.mounter.IsLikelyNotMountPoint(target)
	if err != nil || !free {
		return internal(err)
	}
	return internal(n.mounter.Mount(source, target, "", options))
}

func (n *node) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	err := mount.CleanupMountPoint(request.TargetPath, n.mounter, false)
	return &csi.NodeUnpublishVolumeResponse{}, internal(err)
}

func (n *node) NodeExpandVolume(
	_ context.Context, request *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	if request.VolumeCapability.GetBlock() != nil {
		return &csi.NodeExpandVolumeResponse{}, nil
	}
	source, _, err := mount.GetDeviceNameFromMount(n.mounter, request.VolumePath)
	if err != nil {
		return nil, internal(err)
	}
	if source == "" {
		return nil, status.Error(codes.NotFound, request.VolumePath+" is not mounted")
	}
	if _, err := mount.NewResizeFs(n.mounter.Exec).Resize(source, request.VolumePath); err != nil {
		return nil, internal(err)
	}
	size, err := n.size(source)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, internal(err)
}

func (n *node) size(source string) (int64, error) {
	text, err := n.mounter.Exec.Command("blockdev", "--getsize64", source).Output()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func (n *node) NodeGetVolumeStats(
	_ context.Context, request *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	found, err := os.Stat(request.VolumePath)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if found.Mode()&os.ModeDevice != 0 {
		size, err := n.size(request.VolumePath)
		return &csi.NodeGetVolumeStatsResponse{
			Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: size}},
		}, internal(err)
	}
	var of unix.Statfs_t
	if err := unix.Statfs(request.VolumePath, &of); err != nil {
		return nil, internal(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{
		Unit: csi.VolumeUsage_BYTES, Available: int64(of.Bavail) * of.Bsize,
		Total: int64(of.Blocks) * of.Bsize, Used: int64(of.Blocks-of.Bfree) * of.Bsize,
	}, {
		Unit: csi.VolumeUsage_INODES, Available: int64(of.Ffree), Total: int64(of.Files),
		Used: int64(of.Files - of.Ffree),
	}}}, nil
}
