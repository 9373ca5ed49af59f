// Package dex runs dex, an identity provider that people use, for tests.
package dex

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Config is who may log in, and how tokens are made.
type Config struct {
	Clients []Client `json:"clients"`
	Users   []User   `json:"users"`
	// Rotate is how long a key signs, if not for six hours.
	Rotate time.Duration `json:"-"`
	// Lifetime is that of tokens, if not ten minutes.
	Lifetime time.Duration `json:"-"`
}

// Client is an application, or an audience.
type Client struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Secret       string   `json:"secret,omitempty"`
	Public       bool     `json:"public,omitempty"` // it has no secret
	RedirectURIs []string `json:"redirectURIs,omitempty"`
	// TrustedPeers are the clients that may ask for tokens with this client as their audience.
	TrustedPeers []string `json:"trustedPeers,omitempty"`
}

// User has a password.
type User struct {
	Email    string   `json:"email"`
	Password string   `json:"password"`
	Groups   []string `json:"groups,omitempty"`
}

// AudienceScope is what a client asks for to have the audience in its token: dex ignores the parameter
// resource.
func AudienceScope(audience string) string { return "audience:server:client_id:" + audience }

// Provider is dex as it runs.
type Provider struct {
	Issuer string
	CA     []byte // as PEM
	PID    int
}

// Start runs dex on loopback until the test is over. The first time builds it, which takes a minute or two.
func Start(t *testing.T, config Config) Provider {
	t.Helper()
	program, err := Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, certificate := filepath.Join(dir, "config.json"), filepath.Join(dir, "ca.pem")
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatalf("encode configuration: %v", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatalf("write configuration: %v", err)
	}
	args := []string{"-config", file, "-certificate", certificate}
	if config.Rotate > 0 {
		args = append(args, "-rotate", config.Rotate.String())
	}
	if config.Lifetime > 0 {
		args = append(args, "-lifetime", config.Lifetime.String())
	}
	provider := Provider{}
	provider.Issuer, provider.PID = run(t, program, args)
	if provider.CA, err = os.ReadFile(certificate); err != nil {
		t.Fatalf("read certificate: %v", err)
	}
	return provider
}

// run returns the first line that the program prints, and ends it with the test.
func run(t *testing.T, program string, args []string) (line string, pid int) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	command.Stderr = t.Output()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start dex: %v", err)
	}
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		if output := bufio.NewScanner(stdout); output.Scan() {
			lines <- output.Text()
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("stop dex: %v", err)
		}
	})
	select {
	case line, said := <-lines:
		if !said {
			t.Fatal("dex ended before it served")
		}
		return line, command.Process.Pid
	case <-time.After(hang.Guard):
		t.Fatal("dex does not say where it serves")
	}
	return "", 0
}

// HTTPClient trusts only the provider's CA. It has no cookies and follows no redirects.
func (p Provider) HTTPClient() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.CA)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.RootCAs = roots
	return &http.Client{Transport: transport, Timeout: hang.Guard, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Login does what a user with a browser does at the URL of an authorization request. It returns the
// parameters of the redirect to the client.
func (p Provider) Login(ctx context.Context, authorization string, user User) (url.Values, error) {
	browser := p.HTTPClient()
	browser.Jar, _ = cookiejar.New(nil) // never fails
	var left *url.URL
	browser.CheckRedirect = func(request *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(request.URL.String(), p.Issuer) {
			return nil
		}
		left = request.URL
		return http.ErrUseLastResponse
	}
	form, err := send(ctx, browser, http.MethodGet, authorization, nil)
	if err != nil {
		return nil, fmt.Errorf("ask dex for its login page: %w", err)
	}
	if left == nil { // else dex refused the request
		if _, err := send(ctx, browser, http.MethodPost, form.String(), url.Values{"login": {user.Email}, "password": {user.Password}}); err != nil {
			return nil, fmt.Errorf("log in as %s: %w", user.Email, err)
		}
	}
	if left == nil {
		return nil, fmt.Errorf("log in as %s: dex did not redirect to the client", user.Email)
	}
	values := left.Query()
	if reason := values.Get("error"); reason != "" {
		return nil, fmt.Errorf("log in as %s: %s: %s", user.Email, reason, values.Get("error_description"))
	}
	return values, nil
}

// send returns where the last redirect led to.
func send(ctx context.Context, browser *http.Client, method, address string, form url.Values) (*url.URL, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := browser.Do(request)
	if err != nil {
		return nil, err
	}
	if err := response.Body.Close(); err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, errors.New(response.Status)
	}
	return response.Request.URL, nil
}
