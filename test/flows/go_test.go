//go:build conformance

package flows

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/slipway-mcp/slipway/test/authserver"
)

// goUser logs in as a user.
func goUser(sender *http.Client) func(t *testing.T, at guarded) report {
	return func(t *testing.T, at guarded) report {
		t.Helper()
		return walk(t, at, sender, userHandler(t, at.issuer))
	}
}

func userHandler(t *testing.T, issuer *authserver.Server) auth.OAuthHandler {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "app"}, RedirectURL: callback, Client: issuer.HTTPClient(),
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			values, err := issuer.Login(ctx, args.URL)
			return &auth.AuthorizationResult{Code: values.Get("code"), State: values.Get("state"), Iss: values.Get("iss")}, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// withoutChallenge makes clients look for the metadata where it must be.
type withoutChallenge struct{}

func (withoutChallenge) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		response.Header.Del("WWW-Authenticate")
	}
	return response, err
}

// goBot has a secret, and needs no user.
func goBot(t *testing.T, at guarded) report {
	t.Helper()
	handler, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
		Credentials: &oauthex.ClientCredentials{ClientID: "bot", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "hush"}}, HTTPClient: at.issuer.HTTPClient(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return walk(t, at, http.DefaultClient, handler)
}

// walk goes through all steps, as steps.mjs does.
func walk(t *testing.T, at guarded, sender *http.Client, handler auth.OAuthHandler) report {
	t.Helper()
	w := walker{guarded: at, report: report{}}
	defer w.close()
	w.step("login", func() error { return w.connect(t.Context(), sender, handler) })
	if w.session == nil {
		return w.report
	}
	var served string
	w.step("call", func() (err error) {
		served, err = w.call(t.Context(), at.who)
		return err
	})
	w.step("list", func() error {
		tools, err := w.session.ListTools(t.Context(), nil)
		if err != nil {
			return err
		}
		var names []string
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
		}
		slices.Sort(names)
		return same(fmt.Sprint(names), fmt.Sprint(slices.Sorted(slices.Values([]string{"echo", at.who, at.more}))))
	})
	again := func() error {
		still, err := w.call(t.Context(), at.who)
		if err != nil {
			return err
		}
		return same(still, served)
	}
	w.step("refresh", again) // at every request: tokens are short-lived
	w.step("step-up", func() error {
		if _, err := w.call(t.Context(), at.more); err != nil {
			return err
		}
		return again()
	})
	w.step("never", func() error {
		_, err := w.call(t.Context(), at.never)
		return err
	})
	w.step("afterwards", again)
	return w.report
}

type walker struct {
	guarded
	report  report
	session *mcp.ClientSession
}

func (w *walker) step(name string, do func() error) {
	w.report[name] = ok
	if err := do(); err != nil {
		w.report[name] = err.Error()
	}
}

func (w *walker) connect(ctx context.Context, sender *http.Client, handler auth.OAuthHandler) (err error) {
	w.session, err = mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: w.url, HTTPClient: sender, OAuthHandler: handler}, &mcp.ClientSessionOptions{ProtocolVersion: w.revision})
	if err != nil {
		return err
	}
	return same(w.session.InitializeResult().ProtocolVersion, w.revision)
}

func (w *walker) close() {
	if w.session != nil {
		_ = w.session.Close()
	}
}

// call calls a tool and returns its text.
func (w *walker) call(ctx context.Context, tool string) (string, error) {
	arguments := map[string]any{}
	if tool == w.more {
		arguments = map[string]any{"key": "k", "event": "e"} // matrix wants them
	}
	result, err := w.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", err
	}
	text, is := result.Content[0].(*mcp.TextContent)
	if !is || result.IsError {
		return "", fmt.Errorf("call %s: %+v", tool, result)
	}
	return text.Text, nil
}

func same(got, want string) error {
	if got != want {
		return fmt.Errorf("got %s, want %s", got, want)
	}
	return nil
}
