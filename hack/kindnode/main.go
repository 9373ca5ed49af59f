// Command kindnode writes the images that a node of a kind cluster has from the start, as archives for its
// containerd to import: Kubernetes, CoreDNS, the pod network and pause. build.sh calls it.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

// options name the programs that go into the images, and the images.
type options struct {
	out                            string
	kube, coreDNS, pause, kindnetd string
	filters                        string // directory with iptables and its libraries
	network, sandbox               string // image names
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "`directory` for the archives")
	flag.StringVar(&o.kube, "kube", "", "`program` that is all of Kubernetes and etcd")
	flag.StringVar(&o.coreDNS, "coredns", "", "`program` of CoreDNS")
	flag.StringVar(&o.pause, "pause", "", "`program` of pod sandboxes")
	flag.StringVar(&o.kindnetd, "kindnetd", "", "`program` of the pod network")
	flag.StringVar(&o.filters, "filters", "", "`directory` with iptables and its libraries, as in the image")
	flag.StringVar(&o.network, "network", "", "`name` of the image of the pod network")
	flag.StringVar(&o.sandbox, "sandbox", "", "`name` of the pause image that containerd asks for")
	flag.Parse()
	if err := write(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "kindnode:", err)
		os.Exit(1)
	}
}

// write writes an archive for each name: those that kubeadm wants, and two more.
func write(o options, wanted []string) error {
	images, err := build(o)
	if err != nil {
		return err
	}
	for i, ref := range append(wanted, o.network, o.sandbox) {
		image, err := images.of(ref)
		if err != nil {
			return err
		}
		if err := imagebuild.WriteTar(filepath.Join(o.out, strconv.Itoa(i)+".tar"), ref, image); err != nil {
			return err
		}
	}
	return nil
}

type images struct{ kube, coreDNS, pause, network v1.Image }

// of picks an image by the last part of its name.
func (i *images) of(ref string) (v1.Image, error) {
	name, _, _ := strings.Cut(path.Base(ref), ":")
	switch name {
	case "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd":
		return i.kube, nil
	case "coredns":
		return i.coreDNS, nil
	case "pause":
		return i.pause, nil
	case "kindnetd":
		return i.network, nil
	}
	return nil, fmt.Errorf("write image %s: there is no program of this name", ref)
}

const binaries = "/usr/local/bin/"

func build(o options) (*images, error) {
	filters, err := filesBelow(o.filters)
	if err != nil {
		return nil, err
	}
	kube := append([]imagebuild.File{{Path: binaries + "kube", Source: o.kube, Mode: 0o755}, {Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777}}, filters...)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		kube = append(kube, link(binaries+name, "kube"))
	}
	var all images
	for _, one := range []struct {
		image      *v1.Image
		files      []imagebuild.File
		entrypoint string
	}{
		{&all.kube, kube, ""},
		{&all.network, append([]imagebuild.File{{Path: binaries + "kindnetd", Source: o.kindnetd, Mode: 0o755}}, filters...), binaries + "kindnetd"},
		{&all.coreDNS, []imagebuild.File{{Path: "/coredns", Source: o.coreDNS, Mode: 0o755}}, "/coredns"},
		{&all.pause, []imagebuild.File{{Path: "/pause", Source: o.pause, Mode: 0o755}}, "/pause"},
	} {
		spec := imagebuild.Spec{
			Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Files: one.files,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}
		if one.entrypoint != "" {
			spec.Entrypoint = []string{one.entrypoint}
		}
		if *one.image, err = imagebuild.Image(spec); err != nil {
			return nil, err
		}
	}
	return &all, nil
}

func link(at, target string) imagebuild.File {
	return imagebuild.File{Path: at, Content: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// filesBelow are all files of a directory, and the names that programs call iptables by.
func filesBelow(dir string) (files []imagebuild.File, err error) {
	err = filepath.WalkDir(dir, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, source)
		if err != nil {
			return err
		}
		files = append(files, imagebuild.File{Path: "/" + filepath.ToSlash(below), Source: source, Mode: 0o755})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		files = append(files, link("/usr/sbin/"+name, "xtables-nft-multi"))
	}
	return files, nil
}
