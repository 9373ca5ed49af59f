package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/text"
)

// Request is what a person wants of a new server, as flags of kubectl mcp new have it.
type Request struct {
	Namespace string // may be empty: kubectl apply then chooses
	Name      string
	Image     string
	Package   string // npm:NAME@VERSION or pypi:NAME@VERSION, in place of an image
	Transport string
	Port      *int32
	Path      string
	Command   []string
	Args      []string
	Env       []string // KEY=VALUE
	SecretEnv []string // KEY, or KEY=SECRET/KEY
	Replicas  *int32
}

// Transports are the names of transports, as flags have them.
var Transports = []string{string(mcpv1alpha1.TransportStdio), string(mcpv1alpha1.TransportStreamableHTTP), string(mcpv1alpha1.TransportSSE)}

// New makes an MCPServer, and a Secret to fill in if the request has secret variables without a Secret. An
// error names every flag that is wrong, and what it may be.
func New(request Request) (Result, error) {
	run := &importer{file: "kubectl mcp new", names: map[string]bool{}, isNamed: map[Remark]bool{}}
	n := &newServer{Request: request, draft: run.newDraft(request.Name, nil)}
	n.server.Name, n.server.Namespace = request.Name, request.Namespace
	n.spec.Replicas = request.Replicas
	n.spec.Command, n.spec.Args = request.Command, request.Args
	n.checkNames()
	n.setSource()
	n.setTransport()
	n.setEnv()
	if len(n.wrongs) == 0 {
		n.check() // for what no flag is the cause of alone, such as the size
		n.wrongs = n.problems
	}
	if err := errors.Join(n.wrongs...); err != nil {
		return Result{}, err
	}
	n.servers = append(n.servers, n.draft)
	result := n.result()
	if n.secret != nil {
		result.Comments = map[runtime.Object]string{n.secret: fillIn(n.secret)}
	}
	return result, nil
}

// newServer is the server that a request becomes.
type newServer struct {
	Request
	*draft
	wrongs []error
}

// refuseFlag notes what is wrong with a flag. Values are shown as they were typed, but for what steers a terminal.
func (n *newServer) refuseFlag(flag, value, why string) {
	n.wrongs = append(n.wrongs, fmt.Errorf("%s %q: %s", flag, text.Line(value, longestRemark), why))
}

func (n *newServer) checkNames() {
	if why := WrongName(n.Name); why != "" {
		n.refuseFlag("NAME", n.Name, why)
	}
	if n.Namespace != "" && len(validation.IsDNS1123Label(n.Namespace)) > 0 {
		n.refuseFlag("--namespace", n.Namespace, "it must be a DNS label")
	}
	if n.Replicas != nil && (*n.Replicas < 0 || *n.Replicas > mostReplicas) {
		n.refuseFlag("--replicas", strconv.Itoa(int(*n.Replicas)), "it must be a number from 0 to 1000")
	}
}

// WrongName says why a server cannot have a name; empty if it can.
func WrongName(name string) string {
	if len(validation.IsDNS1035Label(name)) > 0 {
		return "it must have at most 63 lower-case letters, digits and '-', begin with a letter and not end with '-'"
	}
	return ""
}

// WrongImage says why a text names no image; empty if it does.
func WrongImage(image string) string {
	if !isImage(image) {
		return wrongImage
	}
	if _, err := name.ParseReference(image); err != nil {
		return wrongImage + " (" + err.Error() + ")"
	}
	return ""
}

// WrongTransport says why a text names no transport; empty if it does.
func WrongTransport(transport string) string {
	if !slices.Contains(Transports, transport) {
		return "it must be " + strings.Join(Transports[:len(Transports)-1], ", ") + " or " + Transports[len(Transports)-1]
	}
	return ""
}

// WrongPort says why a server cannot listen on a port; empty if it can.
func WrongPort(port int64) string {
	if !isServerPort(port) {
		return "it " + wrongPort
	}
	return ""
}

// setSource sets what the server runs.
func (n *newServer) setSource() {
	if n.Package != "" {
		n.setPackage()
		return
	}
	n.spec.Image = n.Image
	if why := WrongImage(n.Image); why != "" {
		n.refuseFlag("--image", n.Image, why)
	}
}

// The names that npm and PyPI allow, with an exact version.
var (
	npmPackage  = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*@[^@=\s]+$`)
	pypiPackage = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?@[^@=\s]+$`)
)

// setPackage makes the server one that installs its package when it starts, as Import does with npx and uvx.
func (n *newServer) setPackage() {
	if n.Image != "" {
		n.refuseFlag("--image", n.Image, "leave it out with --package, which brings an image")
	}
	if len(n.Command) > 0 {
		n.refuseFlag("--command", strings.Join(n.Command, " "), "leave it out with --package, which brings a command; arguments stand after --")
	}
	index, written, _ := strings.Cut(n.Package, ":")
	form := npmPackage
	switch index {
	case "npm":
		n.spec.Image, n.spec.Command = npxImage, []string{"npx", "-y", written}
	case "pypi":
		n.spec.Image, n.spec.Command = uvxImage, []string{"uvx", written}
		form = pypiPackage
	}
	if n.spec.Image == "" || !form.MatchString(written) || !pinned.MatchString(written) {
		n.refuseFlag("--package", n.Package, "it must be npm:NAME@VERSION or pypi:NAME@VERSION with an exact version, such as npm:@acme/search@2.1.0")
	}
	givePatience(n.spec)
	n.change(n.Name, "--package", installsInPods)
}

// setTransport sets what the server speaks.
func (n *newServer) setTransport() {
	transport := n.Transport
	if n.Package != "" && transport == "" {
		transport = string(mcpv1alpha1.TransportStdio)
	}
	if why := WrongTransport(transport); why != "" {
		n.refuseFlag("--transport", transport, why)
		return
	}
	kind := mcpv1alpha1.TransportType(transport)
	switch {
	case kind == mcpv1alpha1.TransportStdio:
		n.spec.Transport.Type = kind
		n.refuseListening("is for streamable-http and sse: leave it out with --transport stdio")
		return
	case n.Package != "":
		n.refuseFlag("--transport", transport, "a --package is started with npx or uvx, which speak stdio: build an image for another transport")
		return
	}
	port := n.listening()
	if kind == mcpv1alpha1.TransportSSE {
		n.sse(port, n.Path)
	} else {
		n.streamable(port, n.Path)
	}
}

// refuseListening refuses what says where a server listens that does not.
func (n *newServer) refuseListening(why string) {
	if n.Port != nil {
		n.refuseFlag("--port", strconv.Itoa(int(*n.Port)), "it "+why)
	}
	if n.Path != "" {
		n.refuseFlag("--path", n.Path, "it "+why)
	}
}

// listening is the port that a server listens on.
func (n *newServer) listening() (port int32) {
	if n.Port == nil {
		n.refuseFlag("--port", "", "it must be set with --transport "+n.Transport+": it is the port that the server listens on")
	} else if port = *n.Port; WrongPort(int64(port)) != "" {
		n.refuseFlag("--port", strconv.Itoa(int(port)), WrongPort(int64(port)))
	}
	if n.Path != "" && !isURLPath(n.Path) {
		n.refuseFlag("--path", n.Path, "it "+wrongPath)
	}
	return port
}

// setEnv adds the variables in the order of their flags.
func (n *newServer) setEnv() {
	for _, given := range n.Env {
		key, value, isSet := strings.Cut(given, "=")
		if !isSet {
			n.refuseFlag("--env", given, "it must be KEY=VALUE")
			continue
		}
		n.setVariable("--env", corev1.EnvVar{Name: key, Value: value})
		if isSecret(key, value) {
			n.change(n.Name, "--env "+key, looksSecret+": with --secret-env "+key+" it does not stand in the manifest")
		}
	}
	for _, given := range n.SecretEnv {
		key, from, isSet := strings.Cut(given, "=")
		if !isSet {
			n.setVariable("--secret-env", corev1.EnvVar{Name: key, ValueFrom: n.stubFor(key)})
			continue
		}
		secret, secretKey, _ := strings.Cut(from, "/")
		if len(validation.IsDNS1123Subdomain(secret)) > 0 || !isSecretKey(secretKey) {
			n.refuseFlag("--secret-env", given, "it must be KEY, or KEY=SECRET/KEY with a Secret of the namespace and one of its keys")
			continue
		}
		n.setVariable("--secret-env", corev1.EnvVar{Name: key, ValueFrom: secretSource(secret, secretKey)})
	}
}

func (n *newServer) setVariable(flag string, variable corev1.EnvVar) {
	if why := wrongName(variable.Name); why != "" {
		n.refuseFlag(flag, variable.Name, why)
		return
	}
	if n.hasEnv(variable.Name) {
		n.refuseFlag(flag, variable.Name, "the variable is there twice")
	}
	n.spec.Env = append(n.spec.Env, variable)
}

// stubFor adds a key without a value to the Secret that is named after the server.
func (n *newServer) stubFor(key string) *corev1.EnvVarSource {
	if n.secret == nil {
		n.secret = newSecret(n.Namespace, n.Name)
	}
	n.secret.StringData[key] = ""
	return secretSource(n.secret.Name, key)
}

// fillIn says what is to be done with a Secret without values.
func fillIn(secret *corev1.Secret) string {
	what := "the value of the key, which the server reads as the variable of the same name"
	if len(secret.StringData) > 1 {
		what = "the values of the keys, which the server reads as the variables of the same names"
	}
	return "Fill in " + what + ".\nKeep the filled-in Secret out of version control."
}
