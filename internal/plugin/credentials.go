package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
	"github.com/slipway-mcp/slipway/internal/text"
)

// accountFlag is not --as, which sets the user for the API server. It sets the identity that the server sees.
const accountFlag = "service-account"

// calling adds the flags of commands that talk to servers.
func (e *environment) calling(command *cobra.Command) *cobra.Command {
	command.Flags().StringVar(&e.account, accountFlag, "",
		"call as the ServiceAccount `[NAMESPACE/]NAME`, if the server has auth; without this flag, the token in "+bearer.Variable+" counts")
	return command
}

// tokens returns where the token comes from that requests to a server carry; nil if they carry none.
func (e *environment) tokens(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (bearer.Source, error) {
	if server.Spec.Auth == nil {
		if e.account != "" {
			_, _ = fmt.Fprintf(e.ErrOut, "MCPServer %s has no spec.auth, so it gets no token: --%s does nothing.\n", server.Name, accountFlag)
		}
		return nil, nil // an adapter without auth would pass a token on to the server
	}
	if e.account != "" {
		return e.tokensOfAccount(ctx, api, server)
	}
	given, err := bearer.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, fail(exitCredentials, howToGetToken(server), "%w", err)
	}
	if given == nil {
		return nil, nil
	}
	return given, nil
}

// tokensOfAccount has the first token issued at once: an error is easier to understand now than in the
// middle of a session.
func (e *environment) tokensOfAccount(ctx context.Context, api client.Client, server *mcpv1alpha1.MCPServer) (bearer.Source, error) {
	account := types.NamespacedName{Namespace: server.Namespace, Name: e.account}
	if namespace, name, found := strings.Cut(e.account, "/"); found {
		account = types.NamespacedName{Namespace: namespace, Name: name}
	}
	if account.Namespace == "" || account.Name == "" || strings.Contains(account.Name, "/") {
		return nil, fail(exitUnexpected, "Write it as NAME, or as NAMESPACE/NAME.", "%q is no ServiceAccount", e.account)
	}
	if wantsToken(server) && server.Spec.Auth.Kubernetes == nil {
		return nil, fail(exitCredentials, howToGetToken(server), "MCPServer %s takes no tokens of ServiceAccounts: it has no spec.auth.kubernetes", server.Name)
	}
	audiences := bearer.Audiences(server)
	if len(audiences) == 0 {
		return nil, fail(exitUnreachable, "See why: kubectl mcp doctor "+named(server), "MCPServer %s has no address yet that a token could be for", server.Name)
	}
	source := bearer.NewAccount(api, account, audiences[0])
	if _, err := source.Token(ctx); err != nil {
		return nil, notIssued(err, account)
	}
	return source, nil
}

// notIssued says why the API server has issued no token.
func notIssued(err error, account types.NamespacedName) error {
	switch {
	case apierrors.IsForbidden(err):
		return &failure{exitCredentials, err, fmt.Sprintf("Ask for the right to create serviceaccounts/token in namespace %s, which the role edit has. Or set %s to a token that you have got elsewhere.", account.Namespace, bearer.Variable)}
	case apierrors.IsNotFound(err):
		return &failure{exitUnreachable, err, "See those that there are: kubectl get serviceaccounts -n " + account.Namespace}
	default:
		return err
	}
}

// withTokens adds tokens to the requests of a transport.
func withTokens(transport http.RoundTripper, tokens bearer.Source) http.RoundTripper {
	if tokens == nil {
		return transport
	}
	return &bearer.Transport{RoundTripper: transport, Source: tokens}
}

// wantsToken reports whether adapters refuse requests without a token.
func wantsToken(server *mcpv1alpha1.MCPServer) bool {
	return server.Spec.Auth != nil && server.Spec.Auth.Mode != mcpv1alpha1.AuthModeServer
}

// needToken fails for a command that can do nothing without a token.
func needToken(server *mcpv1alpha1.MCPServer, tokens bearer.Source) error {
	if tokens != nil || !wantsToken(server) {
		return nil
	}
	return fail(exitCredentials, howToGetToken(server), "MCPServer %s wants a token of its callers", server.Name)
}

// howToGetToken says what the user can do about a server that wants a token.
func howToGetToken(server *mcpv1alpha1.MCPServer) string {
	auth := server.Spec.Auth
	var ways []string
	for _, issuer := range auth.Issuers {
		ways = append(ways, fmt.Sprintf("To call it as a user of %s, set %s to an access token of %s for this server.", issuer.Name, bearer.Variable, issuer.URL))
	}
	if auth.Kubernetes != nil {
		account, audience := allowedAccount(server), "URL"
		if audiences := bearer.Audiences(server); len(audiences) > 0 {
			audience = audiences[0]
		}
		create := []string{"kubectl", "create", "token", "-n", account.Namespace, account.Name, "--audience", audience, "--duration", "10m"}
		ways = append(ways, fmt.Sprintf("To call it as a ServiceAccount, add --%s %s, or first run: export %s=$(%s)",
			accountFlag, shellWords([]string{account.String()}), bearer.Variable, shellWords(create)))
	}
	if len(ways) == 0 {
		ways = []string{"Set " + bearer.Variable + " to a token that the server accepts. It checks tokens itself."}
	}
	return strings.Join(ways, "\n")
}

// allowedAccount returns the first ServiceAccount that a rule names, or words in place of one.
func allowedAccount(server *mcpv1alpha1.MCPServer) types.NamespacedName {
	if access := server.Spec.Access; access != nil {
		for _, rule := range access.Rules {
			for _, subject := range rule.Subjects {
				if subject.Kind == mcpv1alpha1.SubjectKindServiceAccount {
					return types.NamespacedName{Namespace: subject.Namespace, Name: subject.Name}
				}
			}
		}
	}
	return types.NamespacedName{Namespace: "NAMESPACE", Name: "NAME"}
}

// refusal is an answer that refuses a request for who makes it.
type refusal struct {
	status    int
	words     string // of the adapter or the server; may be empty
	challenge string // WWW-Authenticate
}

// isAboutCaller reports whether other credentials would help.
func (r *refusal) isAboutCaller() bool {
	return r != nil && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden)
}

// refusedError is the error of a request that the server has refused for who makes it.
type refusedError struct{ error }

func (r *refusedError) Unwrap() error { return r.error }

// inWords adds what the answer says to an error that lacks it.
func (r *refusal) inWords(err error) error {
	if r.words == "" || strings.Contains(err.Error(), r.words) {
		return err
	}
	return fmt.Errorf("%w: %s", err, r.words)
}

// explain says what the user can do about a refusal.
func (r *refusal) explain(err error, server *mcpv1alpha1.MCPServer, tokens bearer.Source) error {
	err = &refusedError{r.inWords(err)}
	switch {
	case server.Spec.Auth == nil:
		return &failure{exitCredentials, err, "The server wants credentials that kubectl mcp does not send."}
	case tokens == nil:
		return &failure{exitCredentials, err, howToGetToken(server)}
	case r.status == http.StatusUnauthorized:
		return &failure{exitCredentials, err, "The server does not accept the token of " + tokens.String() + ". " + whyNotAccepted(server, tokens)}
	}
	next := "The server knows you by the token of " + tokens.String() + ", which may not do this."
	if scope := missingScope.FindStringSubmatch(r.challenge); scope != nil {
		return &failure{exitCredentials, err, next + " Get a token with these scopes: " + text.Line(scope[1], errorBytes)}
	}
	return &failure{exitCredentials, err, next + " See who may: kubectl get mcpserver " + named(server) + " -o jsonpath={.spec.access}"}
}

// missingScope finds the scopes that a token lacks in a challenge.
var missingScope = regexp.MustCompile(`error="insufficient_scope".*\bscope="([^"]*)"`)

// whyNotAccepted says what is wrong with a token that the server does not accept.
func whyNotAccepted(server *mcpv1alpha1.MCPServer, tokens bearer.Source) string {
	if given, ok := tokens.(*bearer.Given); ok {
		if problem := given.Problem(server, time.Now()); problem != "" {
			return problem + "\n" + howToGetToken(server)
		}
	}
	return "See whether its keys are known: kubectl mcp doctor " + named(server)
}

// isRefused reports whether the server has refused a request for who makes it.
func isRefused(err error) bool {
	_, ok := errors.AsType[*refusedError](err)
	return ok
}
