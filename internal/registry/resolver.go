package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-mcp/slipway/internal/version"
)

const (
	defaultTimeout     = 15 * time.Second
	defaultConfigBytes = 8 << 20
	// manifestBytes is what registries take for a manifest, as the distribution
	// specification has it.
	manifestBytes = 4 << 20
	// maxHeaderBytes bounds the header of each answer.
	maxHeaderBytes = 64 << 10
	// maxCredentials is how many of the credentials that fit an image are tried.
	maxCredentials = 5
	// maxReferenceBytes bounds what is taken for a reference at all.
	maxReferenceBytes = 1024
)

// Options are how a Resolver works. The zero value is good.
type Options struct {
	// Architecture is whose image is read when there are several; "" is that of
	// this program.
	Architecture string
	// Timeout bounds one Resolve; 0 is 15 seconds.
	Timeout time.Duration
	// MaxConfigBytes bounds the config of an image, up to 16 MiB; 0 is 8 MiB.
	MaxConfigBytes int64
	// TLS is for registries with certificates of their own; nil trusts what the
	// system trusts.
	TLS *tls.Config
	// DNS looks up the names of registries; nil is the system's.
	DNS *net.Resolver
}

// Resolver asks registries. It keeps nothing but idle connections, and may be used by
// many at a time.
//
// A registry is reached with TLS. Only one on localhost, *.localhost or at an address
// of 10/8, 172.16/12 or 192.168/16 is also tried with plain HTTP, when TLS fails:
// that is go-containerregistry's rule. Proxies are those of the environment
// (HTTPS_PROXY, NO_PROXY); then the proxy looks the names up, so of the addresses
// that are never dialed only those which are written out are still recognized.
type Resolver struct {
	architecture string
	timeout      time.Duration
	configBytes  int64
	userAgent    string
	transport    http.RoundTripper
}

// New returns a Resolver.
func New(options Options) *Resolver {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Resolver: options.DNS, Control: addresses.Control}
	return &Resolver{
		architecture: cmp.Or(options.Architecture, runtime.GOARCH),
		timeout:      cmp.Or(options.Timeout, defaultTimeout),
		configBytes:  cmp.Or(options.MaxConfigBytes, defaultConfigBytes),
		userAgent:    "slipway/" + version.Get().Version,
		transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        options.TLS,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxIdleConns:           8,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: maxHeaderBytes,
			// Nothing that is read here is worth it, and it could grow without end.
			DisableCompression: true,
		},
	}
}

// Resolve reads what an image says of itself, with the credentials that the pull
// Secrets have for it. It reads the manifest and the config, never a layer. Of an
// image for several platforms, the digest is that of the index, so that it is right on
// every node, and the rest is what the image for this program's architecture says, or
// else the first for Linux. Errors are of type *Error.
func (r *Resolver) Resolve(ctx context.Context, reference string, pullSecrets []corev1.Secret) (Image, error) {
	ref, problem := parse(reference)
	if problem != nil {
		return Image{}, problem
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	keys := keysFor(familiarName(ref.Context()), pullSecrets)
	for _, key := range keys.candidates() {
		image, err := r.read(ctx, ref, key)
		if err == nil {
			return image, nil
		}
		problem = explain(ref, err)
		problem.Reference = reference
		if problem.Kind != Unauthorized {
			return Image{}, problem
		}
	}
	problem.Detail += keys.hint()
	return Image{}, problem
}

// read reads an image with one set of credentials.
func (r *Resolver) read(ctx context.Context, ref name.Reference, key authn.Authenticator) (Image, error) {
	repository := ref.Context()
	guard := &guard{base: r.transport, registry: repository.RegistryStr()}
	authenticated, err := transport.NewWithContext(ctx, repository.Registry, key,
		transport.NewUserAgent(guard, r.userAgent), []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return Image{}, err
	}
	source := &source{
		client:     &http.Client{Transport: authenticated, CheckRedirect: leaveToGuard},
		repository: repository, configBytes: r.configBytes,
	}
	root, digest, err := source.root(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	manifest, err := source.imageManifest(ctx, root, r.architecture)
	if err != nil {
		return Image{}, err
	}
	image, err := source.config(ctx, manifest.Config)
	if err != nil {
		return Image{}, err
	}
	image.Digest = digest
	image.Reference = familiarName(repository) + "@" + digest
	return image, nil
}

// parse reads a reference the way container runtimes do: a name without a registry is
// one of Docker Hub, and one without a tag has the tag latest.
func parse(reference string) (name.Reference, *Error) {
	invalid := func(detail string) (name.Reference, *Error) {
		return nil, &Error{Kind: Invalid, Reference: shortened(reference), Detail: detail}
	}
	switch {
	case reference == "":
		return invalid("the image has no name")
	case len(reference) > maxReferenceBytes:
		return invalid("the name of the image is too long")
	case strings.Contains(reference, "://"):
		return invalid(quoted(reference) + " is no image reference: it starts with the registry's name, without a scheme such as https://")
	}
	ref, err := name.ParseReference(reference)
	if err != nil || !wellFormed(ref) {
		return invalid(quoted(reference) + " is no image reference, which looks like registry.example/team/name:tag or registry.example/team/name@sha256:…")
	}
	return ref, nil
}

// The grammar of references. The library's is wider: with it, a name could have the
// path of any request.
var (
	registryName   = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	repositoryName = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
)

// wellFormed says whether a container runtime would take a reference, too.
func wellFormed(ref name.Reference) bool {
	repository := ref.Context()
	if !registryName.MatchString(repository.RegistryStr()) || !repositoryName.MatchString(repository.RepositoryStr()) {
		return false
	}
	if _, ok := ref.(name.Digest); ok {
		_, err := v1.NewHash(ref.Identifier()) // sha256 or sha512
		return err == nil
	}
	return tagName.MatchString(ref.Identifier())
}

// familiarName is a repository's full name as container runtimes write it.
func familiarName(repository name.Repository) string {
	registry := repository.RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + repository.RepositoryStr()
}
