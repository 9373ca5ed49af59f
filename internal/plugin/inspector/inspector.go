// Package inspector runs the official MCP Inspector against an endpoint of this machine.
package inspector

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/plugin/node"
)

// Package is the Inspector that was tested.
var Package = node.Package{Name: "@modelcontextprotocol/inspector", Version: "2.12.0", Node: node.Version{Major: 22, Minor: 19}}

const (
	// tokenSetting is the environment variable by which the Inspector takes the token that its API wants.
	tokenSetting = "MCP_INSPECTOR_API_TOKEN" //nolint:gosec // the name of a setting is no secret
	// DefaultPage is where the Inspector serves if no setting says otherwise.
	DefaultPage = "http://localhost:6274"
	// between is how often we look whether the page is there.
	between = 100 * time.Millisecond
	// answerTime is how long the page has to answer before we ask again.
	answerTime = 5 * time.Second
	// pageBytes bounds what we read of a page. The Inspector's own has a few kilobytes.
	pageBytes = 1 << 20
)

// Link is the address at which the Inspector of a page connects to an endpoint by itself. It does so only
// if autoConnect is its own token, so that a link on some page cannot connect it to anything. Of
// transports it knows http, which is Streamable HTTP, and sse.
func Link(page, token, endpoint string) string {
	return page + "/?" + url.Values{tokenSetting: {token}, "serverUrl": {endpoint}, "transport": {"http"}, "autoConnect": {token}}.Encode()
}

// CommandLine is how a user starts an Inspector at DefaultPage with a token.
func CommandLine(token string) string {
	return tokenSetting + "=" + token + " " + Package.CommandLine()
}

// NewToken makes a token that cannot be guessed.
func NewToken() string { return rand.Text() }

// Inspector is one that serves its page.
type Inspector struct {
	Link    string
	process *node.Process
	cancel  context.CancelFunc
	files   string // the directory of what it writes
}

// Start starts an Inspector, and returns when it serves its page. It ends with ctx, or when it is closed.
func Start(ctx context.Context, endpoint string, output io.Writer) (*Inspector, error) {
	files, err := os.MkdirTemp("", "kubectl-mcp-inspector-")
	if err != nil {
		return nil, fmt.Errorf("start the Inspector: %w", err)
	}
	i := &Inspector{files: files}
	ctx, i.cancel = context.WithCancel(ctx)
	if err := i.start(ctx, endpoint, output); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (i *Inspector) start(ctx context.Context, endpoint string, output io.Writer) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	// The link adds its server to the catalog, and the user's own stays as it is.
	catalog, err := filepath.Abs(filepath.Join(i.files, "catalog.json"))
	if err != nil {
		return fmt.Errorf("start the Inspector: %w", err)
	}
	if err := os.WriteFile(catalog, []byte(`{"mcpServers":{}}`), 0o600); err != nil {
		return fmt.Errorf("start the Inspector: %w", err)
	}
	page := page{url: "http://127.0.0.1:" + strconv.Itoa(port), token: NewToken(), answerTime: answerTime}
	if i.process, err = node.Start(ctx, Package, settings(port, page.token, catalog), node.Streams{Out: output, ErrOut: output}); err != nil {
		return err
	}
	i.Link = Link(page.url, page.token, endpoint)
	return page.await(ctx, i.process)
}

// settings has the Inspector serve this machine only, want its token, and open no browser.
func settings(port int, token, catalog string) []string {
	return []string{
		"HOST=127.0.0.1", "CLIENT_PORT=" + strconv.Itoa(port),
		"MCP_SANDBOX_PORT=0", "MCP_APP_ORIGIN_PORT=0", // free ones: several Inspectors can run
		tokenSetting + "=" + token, "DANGEROUSLY_OMIT_AUTH", // not even if the user's shell says so
		"ALLOWED_ORIGINS", "MCP_INSPECTOR_ALLOWED_HOSTS",
		"INSPECTOR_TLS_KEY_PATH", "INSPECTOR_TLS_CERT_PATH", // the link says http
		"MCP_AUTO_OPEN_ENABLED=false", "MCP_CATALOG_PATH=" + catalog,
	}
}

// freePort is a port that nothing listens at. The Inspector picks none itself.
func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// program is one that runs.
type program interface {
	Done() <-chan struct{}
	Wait() (code int, err error)
}

// page is where an Inspector will serve.
type page struct {
	url, token string
	answerTime time.Duration
}

// await waits for as long as npx takes to download the Inspector and to start it.
func (p page) await(ctx context.Context, of program) error {
	look := time.NewTicker(between)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-of.Done():
			code, err := of.Wait()
			if err != nil {
				return fmt.Errorf("run the Inspector: %w", err)
			}
			return fmt.Errorf("the Inspector ended with exit code %d before it served its page", code)
		case <-look.C:
			if p.isThere(ctx, of.Done()) {
				return nil
			}
		}
	}
}

// isThere says whether our Inspector serves its page: another program may have taken the port before it. Only
// our Inspector can write the token into its page, so the command sends the token to no other program.
func (p page) isThere(ctx context.Context, ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, p.answerTime)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel() // who answers now is someone else
		case <-ctx.Done():
		}
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return false
	}
	// Not the default client: a proxy of the user cannot know this machine.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, pageBytes))
	return err == nil && response.StatusCode == http.StatusOK && bytes.Contains(content, []byte(p.token))
}

// Done is closed when the Inspector has ended.
func (i *Inspector) Done() <-chan struct{} { return i.process.Done() }

// Close ends the Inspector, and removes its files.
func (i *Inspector) Close() error {
	i.cancel()
	if i.process != nil {
		<-i.process.Done()
	}
	if err := os.RemoveAll(i.files); err != nil {
		return fmt.Errorf("remove the files of the Inspector: %w", err)
	}
	return nil
}

// CommandLineMode runs the Inspector without its page: it does what the arguments say, and ends. Its exit
// codes mean the same as those of kubectl mcp.
func CommandLineMode(ctx context.Context, endpoint string, streams node.Streams, args ...string) (code int, err error) {
	if len(args) == 0 {
		args = []string{"--method", "tools/list"}
	}
	process, err := node.Start(ctx, Package, nil, streams, append([]string{"--cli", endpoint, "--transport", "http"}, args...)...)
	if err != nil {
		return 0, err
	}
	return process.Wait()
}
