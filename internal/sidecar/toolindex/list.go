package toolindex

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Method is the method of a request for a page of the list.
const Method = "tools/list"

// Timeout is for the server to answer with all pages. Calls wait for that long, and then go on with the
// old list.
const Timeout = 10 * time.Second

// Bounds of one list. The keeper does not accept more tools either.
const (
	maxPages = 1000
	maxTools = 10_000
	maxBytes = 64 << 20 // of all answers
)

var (
	errEndless = errors.New("the list of tools does not end")
	errLarge   = errors.New("the list of tools is too large")

	// ErrAborted is an error of Fetch: the process ended before it could answer. The index does not
	// count that as a failure.
	ErrAborted = errors.New("the request for the list of tools was given up")
)

// Tool is one entry of the list, as far as those who keep an index read it.
type Tool struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Execution   json.RawMessage `json:"execution"`
	Annotations json.RawMessage `json:"annotations"`
}

type page struct {
	Tools      []Tool  `json:"tools"`
	NextCursor *string `json:"nextCursor"`
}

// List says how to request the list of a server, and what to keep of it.
type List[V any] struct {
	// Context ends the request. It must not end with one caller, because others wait for the list,
	// too.
	Context context.Context
	// Fetch makes one request and returns the answer, also if it is an error. The cursor is a member of
	// params with a comma behind it, or empty for the first page.
	Fetch func(ctx context.Context, cursor string) (answer []byte, err error)
	// Keep returns the value of a tool, or false if the index does not need the tool.
	Keep func(Tool) (V, bool)
	// Sessions says that the server speaks a revision with sessions, where an empty cursor also ends a
	// list. In the revision without sessions, an empty cursor is a cursor (P-05).
	Sessions bool
	// Merge adds the list to the index instead of replacing it. It is for a server that may list other
	// tools to other clients that share the index.
	Merge bool
	// Failed is called if the request fails; may be nil.
	Failed func(reason error)
}

// each calls take with the tools of one page after the other.
func (l *List[V]) each(ctx context.Context, take func([]Tool)) error {
	tools, size, cursor := 0, 0, ""
	seen := map[[sha256.Size]byte]bool{} // by digests: a cursor can be as long as an answer
	for range maxPages {
		answer, err := l.Fetch(ctx, cursor)
		if err != nil {
			return err
		}
		if size += len(answer); size > maxBytes {
			return errLarge
		}
		read, err := readPage(answer)
		if err != nil {
			return err
		}
		if tools += len(read.Tools); tools > maxTools {
			return errLarge
		}
		take(read.Tools)
		next := read.NextCursor
		if next == nil || *next == "" && l.Sessions {
			return nil
		}
		digest := sha256.Sum256([]byte(*next))
		if seen[digest] {
			return errEndless
		}
		seen[digest] = true
		cursor = `"cursor":` + string(rpc.AppendString(nil, *next)) + `,`
	}
	return errEndless
}

// readPage reads an answer. A server without the method has no tools (P-06).
func readPage(answer []byte) (page, error) {
	var response struct {
		Result page `json:"result"`
		Error  *struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &response); err != nil {
		return page{}, fmt.Errorf("read the list of tools: %w", err)
	}
	if response.Error != nil && response.Error.Code != rpc.CodeMethodNotFound {
		return page{}, fmt.Errorf("the server answers %s with error %d", Method, response.Error.Code)
	}
	return response.Result, nil
}
