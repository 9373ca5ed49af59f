package toolindex

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// player is a server that lists tools.
type player struct {
	t       *testing.T
	index   Index[string]
	tools   string        // of its list
	fails   error         // in place of it
	hold    chan struct{} // that an answer waits for; may be nil
	fetches int
	reasons []error
	merge   bool
}

func (p *player) list() List[string] {
	return List[string]{
		Context: context.WithoutCancel(p.t.Context()), Keep: keepSchema, Merge: p.merge,
		Failed: func(reason error) { p.reasons = append(p.reasons, reason) },
		Fetch: func(ctx context.Context, _ string) ([]byte, error) {
			p.fetches++
			tools, fails := p.tools, p.fails
			if p.hold != nil {
				select {
				case <-p.hold:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return []byte(`{"result":{"tools":[` + tools + `]}}`), fails
		},
	}
}

func keepSchema(tool Tool) (string, bool) {
	return string(tool.InputSchema), len(tool.InputSchema) > 0
}

func tool(name, schema string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":%q}`, name, schema)
}

func quoted(schema string) string { return strconv.Quote(schema) }

// want looks a tool up, as callers do.
func (p *player) want(name string, age Age, want string, fetches int) {
	p.t.Helper()
	before := p.fetches
	got, current := p.index.Find(name, age)
	if !current {
		got = p.index.Refresh(p.t.Context(), name, age, p.list())
	}
	if want != "" {
		want = quoted(want)
	}
	if asked := p.fetches - before; got != want || asked != fetches {
		p.t.Errorf("%s is %s after %d requests, want %s after %d", name, got, asked, want, fetches)
	}
}

func play(t *testing.T, test func(p *player)) {
	synctest.Test(t, func(t *testing.T) { test(&player{t: t}) })
}

// M-18: the list is asked for when it is too old, when it has changed, and when it does not
// have the tool.
func TestAges(t *testing.T) {
	play(t, func(p *player) {
		p.tools = tool("a", "1")
		p.want("a", Recent, "1", 1)
		p.want("a", Recent, "1", 0)
		p.want("a", Fresh, "1", 0)
		p.want("b", Recent, "", 0) // it has just been asked for
		p.tools = tool("a", "2") + "," + tool("b", "2")
		time.Sleep(Fresh.Listed + time.Millisecond)
		p.want("a", Recent, "1", 0)
		p.want("b", Forever, "", 0)
		p.want("b", Recent, "2", 1)
		p.want("a", Recent, "2", 0)
		p.tools = tool("a", "3")
		time.Sleep(Fresh.Listed + time.Millisecond)
		p.want("a", Fresh, "3", 1)
		p.tools = tool("a", "4")
		time.Sleep(Recent.Listed)
		p.want("a", Recent, "3", 0)
		time.Sleep(time.Millisecond)
		p.want("a", Recent, "4", 1)
		time.Sleep(1000 * time.Hour)
		p.want("a", Forever, "4", 0)
		p.index.Outdate()
		p.tools = tool("b", "5")
		p.want("a", Forever, "", 1)
		p.want("b", Forever, "5", 0)
	})
}

// A list that the server does not have for the adapter is not asked for with every call. What
// was known before is better than nothing.
func TestFailures(t *testing.T) {
	play(t, func(p *player) {
		p.fails = errors.New("played")
		p.want("a", Recent, "", 1)
		p.want("a", Recent, "", 0)
		time.Sleep(retryAfter)
		p.want("a", Recent, "", 0)
		p.want("a", Forever, "", 0)
		time.Sleep(time.Millisecond)
		p.tools, p.fails = tool("a", "1"), nil
		p.want("a", Forever, "1", 1)
		p.index.Doubt()
		p.fails = errors.New("played again")
		p.want("a", Forever, "1", 1)
		p.index.Doubt() // for which there is no list
		p.want("a", Forever, "1", 0)
		p.want("b", Recent, "", 0)
		p.index.Outdate()
		p.want("a", Forever, "1", 1)
		time.Sleep(Fresh.Listed + time.Millisecond)
		p.want("a", Fresh, "1", 1) // it may be what the server has changed
		if len(p.reasons) != 4 || p.reasons[3] == nil || p.reasons[3].Error() != "played again" {
			t.Errorf("told %v", p.reasons)
		}
	})
}

// That a process ends says nothing of the list.
func TestAborted(t *testing.T) {
	play(t, func(p *player) {
		p.fails = fmt.Errorf("%w: played", ErrAborted)
		p.want("a", Forever, "", 1)
		p.tools, p.fails = tool("a", "1"), nil
		p.want("a", Forever, "1", 1)
		p.index.Outdate()
		p.fails = ErrAborted
		p.want("a", Forever, "1", 1)
		p.want("a", Forever, "1", 1)
		p.fails = nil
		p.want("a", Forever, "1", 1)
		p.want("a", Forever, "1", 0)
	})
}

// Callers that need the list at the same time make one request, and none of them goes on
// with a list that is known to be old.
func TestOneRequest(t *testing.T) {
	play(t, func(p *player) {
		p.tools = tool("a", "1")
		p.want("a", Recent, "1", 1)
		p.index.Outdate()
		p.tools, p.hold = tool("a", "2"), make(chan struct{})
		got := make(chan string, 10)
		for range cap(got) {
			go func() {
				v, current := p.index.Find("a", Recent)
				if !current {
					v = p.index.Refresh(p.t.Context(), "a", Recent, p.list())
				}
				got <- v
			}()
			synctest.Wait()
		}
		if len(got) > 0 || p.fetches != 2 {
			t.Errorf("%d callers went on, %d requests", len(got), p.fetches)
		}
		close(p.hold)
		for range cap(got) {
			if v := <-got; v != quoted("2") {
				t.Errorf("got %s", v)
			}
		}
		if p.want("a", Recent, "2", 0); p.fetches != 2 {
			t.Errorf("%d requests", p.fetches)
		}
		if v := p.index.Refresh(p.t.Context(), "a", Recent, p.list()); v != quoted("2") || p.fetches != 2 {
			t.Errorf("a caller that comes too late gets %s after %d requests", v, p.fetches)
		}
	})
}

// A change during the request may have come too late for the list.
func TestChangeDuringRequest(t *testing.T) {
	play(t, func(p *player) {
		p.tools, p.hold = tool("a", "1"), make(chan struct{})
		go func() {
			synctest.Wait()
			p.index.Outdate()
			close(p.hold)
		}()
		p.want("a", Forever, "1", 1) // which is the newest that there is
		p.tools = tool("a", "2")
		p.want("a", Forever, "2", 1)
		p.want("a", Forever, "2", 0)
	})
}

// A caller that goes away leaves the request to others; and none takes longer than it may.
func TestPatience(t *testing.T) {
	play(t, func(p *player) {
		p.tools, p.hold = tool("a", "1"), make(chan struct{})
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
		defer cancel()
		if v := p.index.Refresh(ctx, "a", Recent, p.list()); v != "" || ctx.Err() == nil {
			t.Errorf("got %s", v)
		}
		close(p.hold)
		synctest.Wait()
		p.want("a", Recent, "1", 0)

		p.hold = make(chan struct{})
		p.index.Outdate()
		began := time.Now()
		p.want("a", Recent, "1", 1)
		if took := time.Since(began); took != Timeout {
			t.Errorf("it took %s", took)
		}
	})
}

// Lists of different clients add up, as do pages that come by.
func TestMerge(t *testing.T) {
	play(t, func(p *player) {
		p.merge, p.tools = true, tool("a", "1")+","+tool("b", "1")
		p.want("a", Fresh, "1", 1)
		p.index.Learn([]byte(`{"tools":[`+tool("c", "1")+`,{"name":"b"}],"nextCursor":"x"}`), keepSchema)
		p.index.Learn([]byte(`{"tools":7}`), keepSchema)
		time.Sleep(2 * Fresh.Listed)
		p.tools = tool("a", "2")
		p.want("a", Fresh, "2", 1)
		p.want("b", Forever, "", 0)
		p.want("c", Forever, "1", 0)
	})
}

// What is learned is bounded.
func TestMergeBounds(t *testing.T) {
	var index Index[string]
	for i := range maxTools + 10 {
		index.Learn([]byte(`{"tools":[`+tool(strconv.Itoa(i), "x")+`]}`), keepSchema)
	}
	if n := index.Len(); n != 10 {
		t.Errorf("%d tools are known", n)
	}
}
