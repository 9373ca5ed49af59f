//go:build bench

package controller

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"
)

// call is what the manager asks of the API server.
type call struct{ verb, resource string }

func (c call) isWrite() bool { return !slices.Contains([]string{"get", "list", "watch"}, c.verb) }

// requestsSince counts the manager's requests in the audit log after an offset, and
// returns the offset of what comes after them.
func requestsSince(t *testing.T, offset int64) (requests map[call]int, end int64) {
	t.Helper()
	log, err := os.Open(shared.audit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, offset // no request yet
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(offset, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	requests = map[call]int{}
	for reader := bufio.NewReaderSize(log, 1<<20); ; {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return requests, offset // a line that is not complete is for the next time
		}
		if err != nil {
			t.Fatal(err)
		}
		offset += int64(len(line))
		if asked, counts := readRequest(t, line); counts {
			requests[asked]++
		}
	}
}

// readRequest reads a line of the audit log. A watch has one when it begins and one when
// it ends, of which the first counts.
func readRequest(t *testing.T, line []byte) (asked call, counts bool) {
	t.Helper()
	var event struct {
		Stage     string `json:"stage"`
		Verb      string `json:"verb"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
		} `json:"objectRef"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &event); err != nil {
		t.Fatalf("read audit log: %v: %s", err, line)
	}
	asked = call{event.Verb, cmp.Or(event.ObjectRef.Resource, "(discovery)")}
	if event.ObjectRef.Subresource != "" {
		asked.resource += "/" + event.ObjectRef.Subresource
	}
	return asked, event.Stage == "ResponseComplete" && event.Verb != "watch" || event.Stage == "ResponseStarted" && event.Verb == "watch"
}

// sum adds up the requests for which a condition holds.
func sum(requests map[call]int, which func(call) bool) (count int) {
	for asked, n := range requests {
		if which(asked) {
			count += n
		}
	}
	return count
}

// byNumber are the kinds of requests, the most frequent first.
func byNumber(requests map[call]int) []call {
	return slices.SortedFunc(maps.Keys(requests), func(a, b call) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
}
