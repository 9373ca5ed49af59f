package handle

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

func TestTasksBelongToWhomTheyWereGiven(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{
		"2025-11-25":            `{"task":{"taskId":"t\"1","status":"working"}}`,
		"2026-07-28":            `{"resultType":"task","taskId":"t\"1"}`,
		"2026-07-28, respelled": `{"taskId":"\u0074\u00221","resultType":"\u0074ask"}`,
	} {
		b := newBinder(adapterapi.NewKey())
		if got := bound(t, b, "corp:alice", result); !strings.Contains(got, result) {
			t.Errorf("%s becomes %s", result, got)
		}
		for _, message := range [][2]string{
			{"tasks/get", `"taskId":"t\"1"`}, {"tasks/result", `"taskId":"t\"1"`}, {"tasks/cancel", `"taskId":"t\"1"`},
			{"tasks/update", `"taskId":"t\u0022\u0031"`}, {"tasks/another", `"taskId":"t\"1"`},
			{"subscriptions/listen", `"notifications":{"taskIds":["t\"1"]}`},
		} {
			if _, err := claimed(t, b, "corp:alice", message[0], message[1]); err != nil {
				t.Errorf("%s: alice asks %v: %v", name, message, err)
			}
			if _, err := claimed(t, b, "corp:bob", message[0], message[1]); !errors.Is(err, ErrTask) {
				t.Errorf("%s: bob asks %v: %v", name, message, err)
			}
		}
	}
}

func TestMessagesWithoutATaskOfTheCaller(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	bound(t, b, "corp:alice", `{"task":{"taskId":"t"}}`)
	for name, test := range map[string]struct {
		method, params string
		want           error
	}{
		"no id":                    {"tasks/get", ``, ErrTask},
		"null":                     {"tasks/get", `"taskId":null`, ErrTask},
		"a number":                 {"tasks/get", `"taskId":1`, ErrTask},
		"another":                  {"tasks/get", `"taskId":"u"`, ErrTask},
		"very long":                {"tasks/get", `"taskId":"` + strings.Repeat("t", 1<<20) + `"`, ErrTask},
		"a list":                   {"tasks/list", ``, nil},
		"a call":                   {"tools/call", `"name":"x","task":{"ttl":1}`, nil},
		"one of two":               {"subscriptions/listen", `"notifications":{"taskIds":["t","u"]}`, ErrTask},
		"no array":                 {"subscriptions/listen", `"notifications":{"taskIds":"t"}`, ErrTask},
		"no strings":               {"subscriptions/listen", `"notifications":{"taskIds":[["t"]]}`, ErrTask},
		"twice":                    {"subscriptions/listen", `"notifications":{"taskIds":["t"],"taskIds":["u"]}`, ErrTask},
		"other case":               {"subscriptions/listen", `"notifications":{"TaskIds":["u"]}`, ErrTask},
		"notifications twice":      {"subscriptions/listen", `"notifications":{},"notifications":{"taskIds":["u"]}`, ErrTask},
		"none":                     {"subscriptions/listen", `"notifications":{"taskIds":[],"toolsListChanged":true}`, nil},
		"null for none":            {"subscriptions/listen", `"notifications":{"taskIds":null}`, nil},
		"lists":                    {"subscriptions/listen", `"notifications":{"toolsListChanged":true}`, nil},
		"own task, foreign state":  {"tasks/update", `"taskId":"t","requestState":"abc"`, ErrState},
		"foreign task, with state": {"tasks/update", `"taskId":"u","requestState":"abc"`, ErrTask},
	} {
		if got, err := claimed(t, b, "corp:alice", test.method, test.params); !errors.Is(err, test.want) {
			t.Errorf("%s: %.200s: %v", name, got, err)
		}
	}
}

// An answer that does not begin a task has no owner, so that no caller can own a task by asking for it.
func TestAnswersThatBeginNoTask(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	for _, result := range []string{
		`{"taskId":"t","status":"working"}`, `{"resultType":"complete","taskId":"t"}`, `{"task":"t"}`, `{"task":{"taskId":7}}`,
		`{"structuredContent":{"task":{"taskId":"t"}}}`, `{"task":{"taskId":"t","TaskId":"u"}}`,
		`{"resultType":"task","taskId":"` + strings.Repeat("t", longestTask+1) + `"}`,
	} {
		if got := bound(t, b, "corp:alice", result); !strings.Contains(got, result) {
			t.Errorf("%s becomes %s", result, got)
		}
	}
	for _, id := range []string{"t", "u", strings.Repeat("t", longestTask+1)} {
		if _, err := claimed(t, b, "corp:alice", "tasks/get", `"taskId":"`+id+`"`); !errors.Is(err, ErrTask) {
			t.Errorf("alice has the task %.20s: %v", id, err)
		}
	}
}

func TestListsOfTasks(t *testing.T) {
	t.Parallel()
	b := newBinder(adapterapi.NewKey())
	bound(t, b, "corp:alice", `{"task":{"taskId":"a1"}}`)
	bound(t, b, "corp:alice", `{"task":{"taskId":"a2"}}`)
	bound(t, b, "corp:bob", `{"task":{"taskId":"b1"}}`)
	for given, want := range map[string]string{
		`{"tasks":[{"taskId":"a1"},{"taskId":"b1"}, {"taskId":"a2","x":1}],"nextCursor":"c"}`: `{"tasks":[{"taskId":"a1"}, {"taskId":"a2","x":1}],"nextCursor":"c"}`,
		`{"tasks":[{"taskId":"b1"},{"taskId":"c"}]}`:                                          `{"tasks":[]}`,
		`{"tasks":[{"taskId":7},{"taskId":"a1","taskId":"b1"},{"taskID":"b1"}]}`:              `{"tasks":[]}`,
		`{"tasks":[]}`:               `{"tasks":[]}`,
		`{"tasks":[1,{"name":"x"}]}`: `{"tasks":[1,{"name":"x"}]}`,
	} {
		if got := bound(t, b, "corp:alice", given); got != `{"jsonrpc":"2.0","id":7,"result":`+want+`}` {
			t.Errorf("of %s, alice sees %s", given, got)
		}
	}
	if got := bound(t, b, "corp:alice", `{"tasks":[],"tasks":[{"taskId":"b1"}]}`); strings.Contains(got, "b1") {
		t.Errorf("alice sees %s", got)
	}
}

// A principal with many tasks makes no other one forget its own.
func TestTasksAreForgotten(t *testing.T) {
	t.Parallel()
	var known tasks
	known.record("corp:bob", []byte("b"))
	id := func(i int) []byte { return fmt.Append(nil, i) }
	for i := range mostTasksOfOwner + 1 {
		known.record("corp:alice", id(i))
		known.record("corp:alice", id(i))
	}
	if known.has("corp:alice", id(0)) || !known.has("corp:alice", id(1)) || known.count != mostTasksOfOwner+1 {
		t.Errorf("of one owner, %d tasks are left", known.count)
	}
	for i := range mostTasks - 2 { // with bob's, and alice's last one
		who := caller.Principal(fmt.Sprintf("corp:%d", i))
		if known.record(who, []byte("t")); !known.has(who, []byte("t")) {
			t.Fatalf("the task of %s is forgotten at once", who)
		}
	}
	if !known.has("corp:alice", id(mostTasksOfOwner)) || known.has("corp:alice", id(mostTasksOfOwner-1)) {
		t.Error("alice does not give way to those who have less, her oldest task first")
	}
	if !known.has("corp:bob", []byte("b")) {
		t.Error("bob's only task is forgotten, and others have more")
	}
	if known.count != mostTasks {
		t.Errorf("there are %d tasks", known.count)
	}
	total := 0
	for who, of := range known.owners {
		if total += len(of.order); len(of.order) != len(of.ids) || len(of.order) == 0 {
			t.Errorf("%x has %d tasks in order, and %d", who[:4], len(of.order), len(of.ids))
		}
	}
	if total != known.count {
		t.Errorf("there are %d tasks, and the count is %d", total, known.count)
	}
}
