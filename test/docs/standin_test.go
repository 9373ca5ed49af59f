//go:build docs

package docs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/conformance"
	"github.com/slipway-mcp/slipway/test/npm"
)

// standIn is a pod that stands in for Docker Hub and for the reader's own registry.
type standIn struct {
	cluster *cluster
	plain   string // host:port, for nodes
	secure  string // host:port, for this machine
	service string // address, for pods
	ca      []byte // as PEM
}

var (
	registryNames = []string{"docker.io", "registry.example.com"}
	// tlsNames are what clients connect to.
	tlsNames = []string{"index.docker.io", "registry-1.docker.io", "registry.example.com"}
)

const (
	standInName = "standin"
	plainPort   = 30629
	securePort  = 30630
)

// openStandIn runs the stand-in, and has the nodes pull from it.
func openStandIn(ctx context.Context, t *testing.T, c *cluster) *standIn {
	t.Helper()
	ca, certificate, key := certify(t, tlsNames)
	image := loadStandIn(ctx, t, c)
	labels := map[string]any{"app": standInName}
	metadata := map[string]any{"name": standInName, "namespace": standInNamespace}
	run(ctx, t, "", c.kubectl, "delete", "namespace", standInNamespace, "--ignore-not-found", "--timeout=3m") // of a run that was cut off
	apply(ctx, t, c, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": standInNamespace}})
	t.Cleanup(func() {
		run(context.WithoutCancel(ctx), t, "", c.kubectl, "delete", "namespace", standInNamespace, "--timeout=3m")
	})
	encode := base64.StdEncoding.EncodeToString
	apply(ctx, t, c,
		map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls",
			"data": map[string]any{"tls.crt": encode(certificate), "tls.key": encode(key)},
		},
		map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
			"spec": map[string]any{
				"selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
					"containers": []any{map[string]any{
						"name": standInName, "image": image, "imagePullPolicy": "IfNotPresent", "args": []string{"-names", strings.Join(registryNames, ",")},
						"readinessProbe": map[string]any{"periodSeconds": 1, "tcpSocket": map[string]any{"port": 8443}},
						"volumeMounts":   []any{map[string]any{"name": "pair", "mountPath": "/etc/standin"}},
					}},
					"volumes": []any{map[string]any{"name": "pair", "secret": map[string]any{"secretName": standInName}}},
				}},
			},
		},
		map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": metadata,
			"spec": map[string]any{"type": "NodePort", "selector": labels, "ports": []any{
				map[string]any{"name": "plain", "port": 80, "targetPort": 5000, "nodePort": plainPort},
				map[string]any{"name": "tls", "port": 443, "targetPort": 8443, "nodePort": securePort},
			}},
		},
	)
	run(ctx, t, "", c.kubectl, "--namespace", standInNamespace, "rollout", "status", "deployment/"+standInName, "--timeout=2m")
	node := run(ctx, t, "", c.kubectl, "get", "nodes", "--output", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	s := &standIn{
		cluster: c, ca: ca,
		plain: fmt.Sprintf("%s:%d", node, plainPort), secure: fmt.Sprintf("%s:%d", node, securePort),
		service: run(ctx, t, "", c.kubectl, "--namespace", standInNamespace, "get", "service", standInName, "--output", "jsonpath={.spec.clusterIP}"),
	}
	for _, registry := range registryNames {
		run(ctx, t, "", c.tool, "mirror", registry, s.plain)
		t.Cleanup(func() { run(context.WithoutCancel(ctx), t, "", c.tool, "mirror", registry, "none") })
	}
	return s
}

// loadStandIn builds the image, and loads it because there is no registry yet.
func loadStandIn(ctx context.Context, t *testing.T, c *cluster) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, standInName)
	run(ctx, t, "", "env", "CGO_ENABLED=0", "go", "build", "-o", program, "./test/docs/standin")
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   platform,
		Files:      []imagebuild.File{{Path: "/standin", Source: program, Mode: 0o755}},
		Entrypoint: []string{"/standin"},
	})
	must(t, err)
	digest, err := image.Digest()
	must(t, err)
	reference := "localhost/slipway-docs/standin:" + digest.Hex[:16]
	archive := filepath.Join(dir, "standin.tar")
	must(t, imagebuild.WriteTar(archive, reference, image))
	run(ctx, t, "", c.tool, "load", archive)
	return reference
}

var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// push puts an image into the stand-in, as Docker Hub has it: in an index.
func (s *standIn) push(ctx context.Context, t *testing.T, reference string, spec imagebuild.Spec) {
	t.Helper()
	spec.Platform = platform
	image, err := imagebuild.Image(spec)
	must(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	parsed, err := name.ParseReference(reference)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.secure)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
	defer transport.CloseIdleConnections()
	must(t, remote.WriteIndex(parsed, index, remote.WithContext(ctx), remote.WithTransport(transport)))
}

// pushPublicImages pushes stand-ins for the public images that the pages name. They have the real programs, from npm, in the
// places where the real images have them.
func (s *standIn) pushPublicImages(ctx context.Context, t *testing.T) {
	t.Helper()
	suite, err := conformance.Install(ctx, filepath.Join(repository, "test", "conformance"))
	must(t, err)
	node := []imagebuild.File{{Path: "/usr/local/bin/node", Source: suite.Node, Mode: 0o755}}
	libraries := regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(run(ctx, t, "", "ldd", suite.Node), -1)
	for _, match := range libraries {
		node = append(node, imagebuild.File{Path: match[1], Source: match[1], Mode: 0o755})
	}
	if len(libraries) == 0 {
		t.Fatal("ldd names no libraries of Node.js")
	}
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	s.push(ctx, t, "docker.io/library/node:22-slim", imagebuild.Spec{Files: node, Env: path, Cmd: []string{"node"}})

	modules, err := npm.Install(ctx, filepath.Join(repository, "test", "everything"))
	must(t, err)
	const server = "@modelcontextprotocol/server-everything"
	files := slices.Concat(node, tree(t, "/app/node_modules", modules, server), tree(t, "/app", filepath.Join(modules, server), ""))
	s.push(ctx, t, "docker.io/mcp/everything:latest", imagebuild.Spec{Files: files, Env: path, WorkingDir: "/app", Cmd: []string{"node", "dist/index.js"}})
}

// tree is what is below a directory, without programs of npm, Node.js for other images, and what is left out.
func tree(t *testing.T, target, source, without string) (files []imagebuild.File) {
	t.Helper()
	must(t, filepath.WalkDir(source, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".bin" || strings.HasPrefix(entry.Name(), "node-linux-") || without != "" && relative == without) {
			return filepath.SkipDir
		}
		if entry.Type().IsRegular() {
			files = append(files, imagebuild.File{Path: filepath.Join(target, relative), Source: path})
		}
		return nil
	}))
	return files
}

// leadManager has a manager that a page has installed ask the stand-in instead of Docker Hub. It changes nothing else, and
// nothing if there is no manager.
func (s *standIn) leadManager(ctx context.Context, t *testing.T) {
	t.Helper()
	found, err := try(ctx, "", s.cluster.kubectl, "--namespace", system, "get", "deployment", manager, "--output", "jsonpath={.spec.template.spec.hostAliases}")
	if err != nil || found != "" {
		return
	}
	apply(ctx, t, s.cluster, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": standInName, "namespace": system},
		"data": map[string]any{"ca.crt": string(s.ca)},
	})
	patch := fmt.Sprintf(`{"spec": {"template": {"spec": {
		"hostAliases": [{"ip": %q, "hostnames": ["%s"]}],
		"volumes": [{"name": "standin", "configMap": {"name": "standin"}}],
		"containers": [{"name": "manager", "env": [{"name": "SSL_CERT_FILE", "value": "/etc/standin/ca.crt"}],
			"volumeMounts": [{"name": "standin", "mountPath": "/etc/standin"}]}]}}}}`, s.service, strings.Join(tlsNames, `", "`))
	run(ctx, t, "", s.cluster.kubectl, "--namespace", system, "patch", "deployment", manager, "--type", "strategic", "--patch", patch)
	run(ctx, t, "", s.cluster.kubectl, "--namespace", system, "rollout", "status", "deployment/"+manager, "--timeout=2m")
}

// proxy leads the commands of pages to the stand-in when they connect to a registry that it stands in for, and
// elsewhere as without it.
func (s *standIn) proxy(t *testing.T) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT is known here", http.StatusMethodNotAllowed)
			return
		}
		target, err := s.dial(r.Context(), r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = target.Close() }()
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		done := make(chan struct{}, 2)
		for to, from := range map[net.Conn]io.Reader{target: buffered, client: target} {
			go func() {
				_, _ = io.Copy(to, from) // the end of either is the end of both
				done <- struct{}{}
			}()
		}
		<-done
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (s *standIn) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if slices.Contains(tlsNames, host) && port == "443" {
		address = s.secure
	} else if through := upstream(address); through != nil {
		return connectThrough(ctx, through, address)
	}
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
}

// upstream is the proxy that this machine needs for other addresses, if any.
func upstream(address string) *url.URL {
	request, err := http.NewRequest(http.MethodGet, "https://"+address, nil)
	if err != nil {
		return nil
	}
	through, err := http.ProxyFromEnvironment(request)
	if err != nil {
		return nil
	}
	return through
}

func connectThrough(ctx context.Context, through *url.URL, address string) (net.Conn, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", through.Host)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	// Byte by byte up to the empty line: what follows belongs to the client.
	var head []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); {
		if _, err := connection.Read(one); err != nil {
			return nil, errors.Join(err, connection.Close())
		}
		head = append(head, one[0])
	}
	if !strings.Contains(strings.SplitN(string(head), "\r\n", 2)[0], " 200") {
		return nil, errors.Join(fmt.Errorf("proxy: %s", head), connection.Close())
	}
	return connection, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
