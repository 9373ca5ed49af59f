package plugin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/test/hang"
)

// adapter stands in for one with auth. It answers as an adapter does, and has the API server verify tokens.
type adapter struct {
	audience string
	mcp      http.Handler

	mu   sync.Mutex
	came []string // Authorization of every request
}

func newAdapter(audience string) *adapter {
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Version: "1"}, nil)
	for _, name := range []string{"close_ticket", "list_tickets"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
		})
	}
	return &adapter{audience: audience, mcp: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)}
}

// ServeHTTP implements http.Handler. Only triage may call, and no user may close a ticket.
func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	authorization := strings.Join(r.Header["Authorization"], ", ")
	a.mu.Lock()
	a.came = append(a.came, authorization)
	a.mu.Unlock()
	refuse := func(status int, id json.RawMessage, words string) {
		w.Header().Set("Content-Type", "application/json")
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": status, "message": words}})
	}
	if authorization == "" {
		refuse(http.StatusUnauthorized, nil, "this server needs a token: send it in the header Authorization, as Bearer")
		return
	}
	review := reviewed(r.Context(), strings.TrimPrefix(authorization, "Bearer "), a.audience)
	if !review.Authenticated {
		refuse(http.StatusUnauthorized, nil, "this server does not accept the token: get a new one for this server")
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if bytes.Contains(content, []byte(`"close_ticket"`)) {
		var request struct{ ID json.RawMessage }
		_ = json.Unmarshal(content, &request)
		refuse(http.StatusForbidden, request.ID, "no rule allows "+review.User.Username+" to call the tool close_ticket")
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
	a.mcp.ServeHTTP(w, r)
}

// tokens are the different tokens that came.
func (a *adapter) tokens() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(a.came)))
}

// reviewed is what the API server says of a token.
func reviewed(ctx context.Context, token, audience string) authenticationv1.TokenReviewStatus {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}
	if err := admin.Create(ctx, review); err != nil {
		return authenticationv1.TokenReviewStatus{Error: err.Error()}
	}
	return review.Status
}

// issued is a token of the API server for a ServiceAccount.
func issued(t *testing.T, account *corev1.ServiceAccount, audience string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: new(int64(600))}}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

const ticketsAudience = "https://tickets.example.com/mcp"

// guarded makes servers of which tickets wants tokens, and an adapter for them.
func guarded(t *testing.T, namespace string) (*adapter, *corev1.ServiceAccount) {
	t.Helper()
	createServers(t, namespace)
	protect(t, namespace, "tickets", &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}, Resources: []mcpv1alpha1.ResourceURL{ticketsAudience}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "triage"}}
	create(t, account)
	t.Cleanup(func() { remove(t, account) })
	serving := newAdapter(ticketsAudience)
	node := startKubelet(t, namespace)
	for _, server := range []string{"tickets", "asleep"} {
		node.addPod(t, namespace, server, server+"-1", nil)
		node.serve(t, namespace+"/"+server+"-1", mcpv1alpha1.AdapterPort, serving)
	}
	return serving, account
}

// protect gives a server auth, and rules that allow triage everything.
func protect(t *testing.T, namespace, name string, auth *mcpv1alpha1.Auth) {
	t.Helper()
	server := &mcpv1alpha1.MCPServer{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, server); err != nil {
		t.Fatal(err)
	}
	server.Spec.Auth = auth
	server.Spec.Access = &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
		Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindServiceAccount, Namespace: namespace, Name: "triage"}}, Tools: []mcpv1alpha1.NamePattern{"*"},
	}}}
	if err := admin.Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	server.Status.ObservedGeneration = server.Generation
	server.Status.Conditions = append(server.Status.Conditions, condition(mcpv1alpha1.ConditionAccessEnforced, "True", mcpv1alpha1.ReasonAccessEnforced, ""))
	if err := admin.Status().Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
}

// The API server issues the token: for this server, for ten minutes, and for the account of the flag.
func TestServiceAccount(t *testing.T) {
	namespace := newNamespace(t, "service-account")
	serving, _ := guarded(t, namespace)
	t.Setenv("SLIPWAY_TOKEN", "not-this-one") // the flag comes first
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "call", "tickets", "list_tickets", "-n", namespace, "--service-account", "triage")
	if want := (result{0, "done\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	tokens := serving.tokens()
	if len(tokens) != 1 || !strings.HasPrefix(tokens[0], "Bearer ") {
		t.Fatalf("%d different tokens came", len(tokens))
	}
	token := strings.TrimPrefix(tokens[0], "Bearer ")
	if review := reviewed(t.Context(), token, ticketsAudience); review.User.Username != "system:serviceaccount:service-account:triage" {
		t.Errorf("it is of %q: %s", review.User.Username, review.Error)
	}
	if review := reviewed(t.Context(), token, "https://kubernetes.default.svc"); review.Authenticated {
		t.Error("the API server itself takes it, too")
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Audience []string `json:"aud"`
		Expires  int64    `json:"exp"`
		Issued   int64    `json:"iat"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{ticketsAudience}, claims.Audience); diff != "" || claims.Expires-claims.Issued != 600 {
		t.Errorf("it is valid for %d seconds; audience (-want +got):\n%s", claims.Expires-claims.Issued, diff)
	}
}

// What happens without the right token, and what to do about it.
func TestTokens(t *testing.T) {
	namespace := newNamespace(t, "tokens")
	serving, account := guarded(t, namespace)
	protect(t, namespace, "search", &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{{Name: "corp", URL: "https://login.example.com"}}})
	valid, foreign := issued(t, account, ticketsAudience), issued(t, account, "https://other.example.com/mcp")
	call := []string{"call", "tickets", "list_tickets"}
	const (
		session    = "error: open a session with MCPServer tickets: calling \"initialize\": sending \"initialize\": "
		howToGet   = "To call it as a ServiceAccount, add --service-account tokens/triage, or first run: export SLIPWAY_TOKEN=$(kubectl create token -n tokens triage --audience https://tickets.example.com/mcp --duration 10m)\n"
		ofCorp     = "To call it as a user of corp, set SLIPWAY_TOKEN to an access token of https://login.example.com for this server.\n"
		withoutJWT = "this server does not accept the token: get a new one for this server\nThe server does not accept the token of SLIPWAY_TOKEN"
	)
	for name, test := range map[string]struct {
		user, token string
		args        []string
		code        int
		want        string // of what is on standard error, where * is anything
	}{
		"from the environment": {kubeconfig, valid, call, 0, ""},
		"none":                 {kubeconfig, "", call, 3, session + "*this server needs a token: send it in the header Authorization, as Bearer\n" + howToGet},
		"for another server": {
			kubeconfig, foreign, call, 3,
			session + "*" + withoutJWT + ", whose subject is \"system:serviceaccount:tokens:triage\". Its audience is [\"https://other.example.com/mcp\"], and the server wants one of [\"https://tickets.example.com/mcp\"].\n" + howToGet,
		},
		"no JWT":   {kubeconfig, "abc", call, 3, session + "*" + withoutJWT + ". It is no JWT that could be read.\n" + howToGet},
		"no token": {kubeconfig, "Bearer abc", call, 3, "error: SLIPWAY_TOKEN holds no bearer token: it must be the token alone, without the word Bearer, quotes or blanks\n" + howToGet},
		"for what no rule allows": {
			kubeconfig, "", []string{"call", "tickets", "close_ticket", "id=1", "--service-account", "tokens/triage"}, 3,
			"error: call tool close_ticket of MCPServer tickets: calling \"tools/call\": sending \"tools/call\": no rule allows system:serviceaccount:tokens:triage to call the tool close_ticket*\n" +
				"The server knows you by the token of system:serviceaccount:tokens:triage, which may not do this. See who may: kubectl get mcpserver -n tokens tickets -o jsonpath={.spec.access}\n",
		},
		"of no account": {
			kubeconfig, "", append(call, "--service-account", "absent"), 4,
			"error: issue a token of ServiceAccount tokens/absent: serviceaccounts \"absent\" not found\nSee those that there are: kubectl get serviceaccounts -n tokens\n",
		},
		"of no name": {kubeconfig, "", append(call, "--service-account", "a/b/c"), 1, "error: \"a/b/c\" is no ServiceAccount\nWrite it as NAME, or as NAMESPACE/NAME.\n"},
		"without the right": {
			viewer, "", append(call, "--service-account", "triage"), 3,
			"error: issue a token of ServiceAccount tokens/triage: serviceaccounts \"triage\" is forbidden: User \"viewer\" cannot create resource \"serviceaccounts/token\" in API group \"\" in the namespace \"tokens\"\n" +
				"Ask for the right to create serviceaccounts/token in namespace tokens, which the role edit has. Or set SLIPWAY_TOKEN to a token that you have got elsewhere.\n",
		},
		"of an account, for another issuer": {
			kubeconfig, "", []string{"read", "search", "x://y", "--service-account", "triage"}, 3,
			"error: MCPServer search takes no tokens of ServiceAccounts: it has no spec.auth.kubernetes\n" + ofCorp,
		},
		"stdio": {kubeconfig, "", []string{"connect", "tickets", "--stdio"}, 3, "error: MCPServer tickets wants a token of its callers\n" + howToGet},
		"a server without auth": {
			kubeconfig, valid, []string{"read", "asleep", "x://y", "--service-account", "triage"}, 3,
			"MCPServer asleep has no spec.auth, so it gets no token: --service-account does nothing.\nerror: open a session with MCPServer asleep: *this server needs a token*\nThe server wants credentials that kubectl mcp does not send.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SLIPWAY_TOKEN", test.token)
			got := kubectlMCP(t, test.user, table.Screen{}, append(slices.Clone(test.args), "-n", namespace)...)
			pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(test.want), `\*`, ".*") + "$"
			if got.code != test.code || !regexp.MustCompile(pattern).MatchString(got.errOut) {
				t.Errorf("exit code %d, want %d; (-want +got):\n%s", got.code, test.code, cmp.Diff(test.want, got.errOut))
			}
			for _, token := range append(serving.tokens(), valid, foreign) {
				if secret := strings.TrimPrefix(token, "Bearer "); len(secret) > 10 && strings.Contains(got.out+got.errOut, secret) {
					t.Error("it prints a token")
				}
			}
		})
	}
	t.Run("the role edit has the right", func(t *testing.T) {
		edit := &rbacv1.ClusterRole{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "system:aggregate-to-edit"}, edit); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(edit.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "serviceaccounts/token") && slices.Contains(rule.Verbs, "create")
		}) {
			t.Error("the advice is wrong")
		}
	})
}

// connecting runs kubectl mcp connect until the test ends, and returns what it says first.
func connecting(t *testing.T, in io.Reader, out io.Writer, args ...string) (said <-chan string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(chan string, 16)
	reader, writer := io.Pipe()
	go func() {
		content := make([]byte, 4<<10)
		for {
			n, err := reader.Read(content)
			if err != nil {
				return
			}
			lines <- string(content[:n])
		}
	}()
	ended := make(chan int, 1)
	go func() {
		ended <- plugin.Run(ctx, append([]string{"--kubeconfig=" + kubeconfig, "connect"}, args...), plugin.Terminal{
			IOStreams: genericiooptions.IOStreams{In: in, Out: out, ErrOut: writer}, Now: time.Now,
		})
		_ = writer.Close()
	}()
	return lines, func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// Clients of this machine need no token of their own, and cannot use another.
func TestConnectWithToken(t *testing.T) {
	namespace := newNamespace(t, "connect-token")
	serving, _ := guarded(t, namespace)
	said, stop := connecting(t, strings.NewReader(""), io.Discard, "tickets", "-n", namespace, "--port", "0", "--service-account", "triage")
	defer stop()
	at := regexp.MustCompile(`http://[^ ]+`).FindString(<-said)
	if second := <-said; second != "Requests get the token of system:serviceaccount:connect-token:triage, in place of any that a client sends.\n" {
		t.Errorf("it says %q", second)
	}
	client := &http.Client{Transport: withHeader{"Bearer of-the-client"}, Timeout: hang.Guard}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: at, HTTPClient: client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_tickets"}); err != nil || result.IsError {
		t.Errorf("%v, %v", result, err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if tokens := serving.tokens(); len(tokens) != 1 || tokens[0] == "" || tokens[0] == "Bearer of-the-client" {
		t.Errorf("%d different tokens came, or none, or that of the client", len(tokens))
	}
}

// withHeader sends requests with a token.
type withHeader struct{ authorization string }

func (w withHeader) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", w.authorization)
	return http.DefaultTransport.RoundTrip(request)
}

// Clients on standard input and output need none either.
func TestConnectStdioWithToken(t *testing.T) {
	namespace := newNamespace(t, "stdio-token")
	serving, account := guarded(t, namespace)
	token := issued(t, account, ticketsAudience)
	t.Setenv("SLIPWAY_TOKEN", token)
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	_, stop := connecting(t, fromClient, toClient, "tickets", "-n", namespace, "--stdio")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: fromBridge, Writer: toBridge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_tickets"}); err != nil || result.IsError {
		t.Errorf("%v, %v", result, err)
	}
	_ = session.Close()
	stop()
	if diff := cmp.Diff([]string{"Bearer " + token}, serving.tokens()); diff != "" {
		t.Error("another token came, or requests without one")
	}
}

// The suite reaches the server with a token that it does not see: neither in its arguments, nor in its
// environment.
func TestConformanceWithToken(t *testing.T) {
	bash, err := filepath.EvalSymlinks("/bin/bash")
	if err != nil {
		t.Skip("the stand-in for npx needs bash")
	}
	namespace := newNamespace(t, "suite-token")
	serving, account := guarded(t, namespace)
	token := issued(t, account, ticketsAudience)
	t.Setenv("SLIPWAY_TOKEN", token)
	seen := filepath.Join(t.TempDir(), "seen")
	t.Setenv("SEEN", seen)
	programs := t.TempDir()
	t.Setenv("PATH", programs)
	for name, script := range map[string]string{
		"node": "echo v24.1.0",
		"npx": `
{ printf '%s\n' "$@"; declare -x; } >>"$SEEN"
if [[ "$*" =~ http://([0-9.]+):([0-9]+)/mcp ]]; then
  exec 3<>"/dev/tcp/${BASH_REMATCH[1]}/${BASH_REMATCH[2]}"
  printf 'POST /mcp HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n' >&3
  read -r _ status _ <&3
  echo "the server answers $status"
fi
exit 7`,
	} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!"+bash+"\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "conformance", "tickets", "-n", namespace)
	if got.code != 1 || !strings.Contains(got.errOut, "the suite ended with exit code 7: the server answers 4") || strings.Contains(got.errOut, "answers 401") || strings.Contains(got.errOut, "answers 403") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	content, err := os.ReadFile(seen)
	if err != nil || !bytes.Contains(content, []byte("declare -x SEEN=")) {
		t.Fatalf("%v: %s", err, content)
	}
	if bytes.Contains(content, []byte(token)) || bytes.Contains(content, []byte("SLIPWAY_TOKEN")) {
		t.Error("the program sees the token")
	}
	if diff := cmp.Diff([]string{"Bearer " + token}, serving.tokens()); diff != "" {
		t.Error("another token came, or requests without one")
	}
	t.Setenv("SLIPWAY_TOKEN", "")
	if got := kubectlMCP(t, kubeconfig, table.Screen{}, "conformance", "tickets", "-n", namespace); got.code != 3 || !strings.HasPrefix(got.errOut, "error: MCPServer tickets wants a token of its callers\n") {
		t.Errorf("without a token: %+v", got)
	}
}

// doctor and list say what auth does. doctor --deep uses a token, and is no worse off without one.
func TestDoctorWithAuth(t *testing.T) {
	namespace := newNamespace(t, "doctor-auth")
	guarded(t, namespace)
	t.Setenv("SLIPWAY_TOKEN", "")
	for name, test := range map[string]struct {
		args []string
		code int
	}{
		"auth-doctor.txt":       {[]string{"doctor", "tickets"}, 0},
		"auth-doctor-deep.txt":  {[]string{"doctor", "tickets", "--deep", "--service-account", "triage"}, 0},
		"auth-doctor-token.txt": {[]string{"doctor", "tickets", "--deep"}, 0},
		"auth-list.txt":         {[]string{"list", "-o", "wide"}, 0},
		"auth-connect.txt":      {[]string{"connect", "tickets", "--print", "claude-code", "--service-account", "triage"}, 0},
		"auth-connect-none.txt": {[]string{"connect", "tickets", "--print", "claude-desktop"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, kubeconfig, table.Screen{}, append(slices.Clone(test.args), "-n", namespace)...)
			golden(t, name, got.out+got.errOut, kubernetesVersion(t), "VERSION")
			if got.code != test.code {
				t.Errorf("exit code %d", got.code)
			}
		})
	}
}
