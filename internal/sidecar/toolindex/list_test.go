package toolindex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// pages asks for a list, and returns the names of its tools and the cursors that were sent.
func pages(t *testing.T, sessions bool, answer func(page int) string) (names, cursors []string, err error) {
	t.Helper()
	list := List[bool]{Sessions: sessions, Fetch: func(_ context.Context, cursor string) ([]byte, error) {
		if _, err := rpc.Scan([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + cursor + `"_meta":{}}}`)); err != nil {
			t.Fatalf("params with %s: %v", cursor, err)
		}
		cursors = append(cursors, cursor)
		return []byte(answer(len(cursors))), nil
	}}
	err = list.each(t.Context(), func(tools []Tool) {
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
	})
	return names, cursors, err
}

func named(name, next string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"` + name + `"}]` + next + `}}`
}

// P-05: cursors are sent as they came, until there is none. An empty one is a cursor where
// there are no sessions.
func TestPages(t *testing.T) {
	answers := []string{named("a", `,"nextCursor":"\"<c"`), named("b", `,"nextCursor":""`), named("c", `,"nextCursor":null`)}
	answer := func(page int) string { return answers[page-1] }
	names, cursors, err := pages(t, false, answer)
	if want := []string{"", `"cursor":"\"\u003cc",`, `"cursor":"",`}; !slices.Equal(cursors, want) || !slices.Equal(names, []string{"a", "b", "c"}) || err != nil {
		t.Errorf("got %q with %q, error %v", names, cursors, err)
	}
	if names, _, err = pages(t, true, answer); !slices.Equal(names, []string{"a", "b"}) || err != nil {
		t.Errorf("of a server with sessions got %q, error %v", names, err)
	}
}

// P-05: every list has an end here.
func TestPageBounds(t *testing.T) {
	next := func(page int) string { return `,"nextCursor":"` + strconv.Itoa(page) + `"` }
	for name, test := range map[string]struct {
		answer func(page int) string
		want   error
		pages  int
	}{
		"a cursor again": {func(page int) string { return named("a", next(page%3)) }, errEndless, 4},
		"pages":          {func(page int) string { return named("a", next(page)) }, errEndless, maxPages},
		"tools": {func(page int) string {
			return `{"result":{"tools":[` + strings.Repeat(`{},`, maxTools/2) + `{}]` + next(page) + `}}`
		}, errLarge, 2},
		"bytes": {func(page int) string {
			if page == 1 {
				return named("a", next(page))
			}
			return strings.Repeat(" ", maxBytes)
		}, errLarge, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, cursors, err := pages(t, false, test.answer); !errors.Is(err, test.want) || len(cursors) != test.pages {
				t.Errorf("%d pages, error %v", len(cursors), err)
			}
		})
	}
	largest := func(page int) string {
		if page == maxPages {
			return named("a", "")
		}
		return `{"result":{"tools":[` + strings.Repeat(`{},`, maxTools/maxPages-1) + `{}]` + next(page) + `}}`
	}
	if names, _, err := pages(t, false, largest); err != nil {
		t.Errorf("%d tools, error %v", len(names), err)
	}
}

// P-06: a server without the method has no tools. Any other error is no list.
func TestAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		`{"error":{"code":-32601,"message":"no such method"}}`: "",
		`{"result":{}}`:   "",
		`{"result":null}`: "",
		`{"error":{"code":-32603,"message":"busy"}}`:                         "the server answers tools/list with error -32603",
		`{"result":{"tools":7}}`:                                             "read the list of tools",
		`{"result":{"tools":[{"name":7}]}}`:                                  "read the list of tools",
		`{"result":{"tools":[],"nextCursor":7}}`:                             "read the list of tools",
		`{"result":{"tools":[{"name":"a","execution":7,"inputSchema":[]}]}}`: "",
	} {
		_, _, err := pages(t, false, func(int) string { return answer })
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) && err != nil {
			t.Errorf("%s: got %s, want %q", answer, got, want)
		}
	}
}
