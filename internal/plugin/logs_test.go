package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/follow"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// podServer is an API server that has pods with logs.
type podServer struct {
	pods    []corev1.Pod
	changes chan corev1.Pod // is closed at the end of the test
	noWatch bool
	breaks  bool              // logs end, also those that are followed
	logs    map[string]string // by pod

	mu    sync.Mutex
	asked []string // for logs, as POD?QUERY
}

// ServeHTTP implements http.Handler.
func (s *podServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	name, isLog := strings.CutSuffix(strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/a/pods/"), "/log")
	switch {
	case isLog:
		s.mu.Lock()
		s.asked = append(s.asked, name+"?"+request.URL.RawQuery)
		s.mu.Unlock()
		_, _ = fmt.Fprint(w, s.logs[name])
		_ = http.NewResponseController(w).Flush()
		if request.URL.Query().Get("follow") == "true" && !s.breaks {
			<-request.Context().Done()
		}
	case request.URL.Query().Get("watch") == "":
		s.write(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: s.pods})
	case s.noWatch:
		w.WriteHeader(http.StatusForbidden)
		s.write(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
	default:
		_ = http.NewResponseController(w).Flush()
		for pod := range s.changes {
			pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			s.write(w, map[string]any{"type": "MODIFIED", "object": pod})
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func (*podServer) write(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }

func runningPod(name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer, ContainerID: "c"}}},
	}
}

// stamped is a log with the times of its lines, which are half a second apart.
func stamped(lines ...string) string {
	var log strings.Builder
	for i, line := range lines {
		written := time.Date(2026, 7, 28, 12, 0, 0, i*500_000_000+7, time.UTC)
		log.WriteString(written.Format(time.RFC3339Nano) + " " + line + "\n")
	}
	return log.String()
}

// followed follows the logs of a server until the test stops it.
func followed(t *testing.T, s *podServer, options logOptions) (out, errOut *bufio.Reader, stop func() error) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(s.changes) })
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	e, _, _ := typed("", table.Screen{})
	fromOut, toOut := io.Pipe()
	fromErrOut, toErrOut := io.Pipe()
	e.Out, e.ErrOut = toOut, toErrOut
	options.follow = true
	l := &logs{environment: e, pods: kube.CoreV1().Pods("a"), server: "tickets", options: options, seen: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&follow.Logs{Source: l, Container: l.container(), Read: l.show, Note: l.note}).Run(ctx)
		_, _ = toOut.Close(), toErrOut.Close()
	}()
	return bufio.NewReader(fromOut), bufio.NewReader(fromErrOut), func() error {
		cancel()
		return <-ended
	}
}

// line is the next line of an output.
func line(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	next, err := from.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// Lines have the name of their pod as soon as there are several. A pod that comes later is shown from its
// start, whatever --tail says.
func TestFollow(t *testing.T) {
	s := &podServer{pods: []corev1.Pod{runningPod("old")}, changes: make(chan corev1.Pod), logs: map[string]string{
		"old": stamped("[1] first", "[2] second"), "new": stamped("[1] third", "[2] fourth"),
	}}
	out, errOut, stop := followed(t, s, logOptions{tail: 5, session: 2})
	if got := line(t, out); got != "[2] second\n" {
		t.Errorf("the first line is %q", got)
	}
	s.changes <- runningPod("new")
	if got := line(t, out); got != "new [2] fourth\n" {
		t.Errorf("the line of the other pod is %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for name, from := range map[string]io.Reader{"output": out, "error": errOut} {
		if rest, err := io.ReadAll(from); err != nil || len(rest) > 0 {
			t.Errorf("standard %s: %q, %v", name, rest, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := strings.Join(s.asked, " "), "old?container=mcp-server&follow=true&tailLines=5&timestamps=true new?container=mcp-server&follow=true&timestamps=true"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

// The rights to list pods and to read logs are enough to follow the pods of now.
func TestFollowWithoutWatch(t *testing.T) {
	s := &podServer{pods: []corev1.Pod{runningPod("a"), runningPod("b")}, changes: make(chan corev1.Pod), noWatch: true, logs: map[string]string{"a": stamped("one"), "b": stamped("two")}}
	out, errOut, stop := followed(t, s, logOptions{tail: -1})
	if got := line(t, errOut); !strings.HasSuffix(got, "The right is: watch pods.\n") {
		t.Errorf("it says %q", got)
	}
	got := []string{line(t, out), line(t, out)}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a one\n", "b two\n"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// endless is a log that repeats itself without a line break, up to a number of bytes.
type endless struct{ left int }

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range p[:n] {
		p[i] = 'x'
	}
	e.left -= n
	return n, nil
}

// counter counts what is written to it, and the largest piece of that.
type counter struct{ bytes, largest int }

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	c.largest = max(c.largest, len(p))
	return len(p), nil
}

// A server that never ends its line does not fill the memory of the user.
func TestEndlessLine(t *testing.T) {
	const size = 16 << 20
	e, _, _ := typed("", table.Screen{})
	out := &counter{}
	e.Out = out
	l := &logs{environment: e, seen: map[string]bool{}}
	if err := l.showLines(&corev1.Pod{}, &endless{size}, &follow.Place{}); err != nil {
		t.Fatal(err)
	}
	if want := size + size/pieceBytes; out.bytes != want || out.largest > pieceBytes+1 {
		t.Errorf("%d bytes are shown, want %d; the largest piece has %d", out.bytes, want, out.largest)
	}
}

// All pieces of a long line belong to its session, and none to another.
func TestPieces(t *testing.T) {
	long := "[2] " + strings.Repeat("x", pieceBytes-4)
	for name, test := range map[string]struct{ log, want string }{
		"of another session": {"[1] " + strings.Repeat("[2] ", pieceBytes) + "\n[2] a\n", "[2] a\n"},
		"of this session":    {long + "rest\n[1] a\n", long + "\nrest\n"},
		"as long as a piece": {long + "\n[2] a\n", long + "\n[2] a\n"},
		"without an end":     {"[2] a\n[2] b", "[2] a\n[2] b\n"},
		"empty lines":        {"[2] \n\n[2] a\n", "[2] \n[2] a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, out, _ := typed("", table.Screen{})
			l := &logs{environment: e, options: logOptions{session: 2}, seen: map[string]bool{}}
			if err := l.showLines(&corev1.Pod{}, strings.NewReader(test.log), &follow.Place{}); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != test.want {
				t.Errorf("%d bytes are shown, want %d", len(got), len(test.want))
			}
		})
	}
}

// A log that broke off goes on behind the last line that was complete. The API server only knows seconds.
func TestBrokenLog(t *testing.T) {
	all := stamped("[2] one", "[1] two", "[2] three", "[2] four", "", "[2] five")
	s := &podServer{logs: map[string]string{}}
	server := httptest.NewServer(s)
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		first, again, want string
		options            logOptions
		asked              string // the second time
	}{
		"between lines": {
			stamped("[2] one", "[1] two", "[2] three"), all, "[2] one\n[1] two\n[2] three\n[2] four\n\n[2] five\n",
			logOptions{tail: 7}, "sinceTime=2026-07-28T12%3A00%3A01Z&timestamps=true",
		},
		"of a session": {
			stamped("[2] one", "[1] two"), all, "[2] one\n[2] three\n[2] four\n[2] five\n",
			logOptions{tail: -1, session: 2}, "sinceTime=2026-07-28T12%3A00%3A00Z&timestamps=true",
		},
		"within a line": {
			strings.TrimSuffix(stamped("[2] one", "[1] two"), "o\n"), stamped("[2] one", "[1] two"), "[2] one\n[1] tw\n[1] two\n",
			logOptions{tail: -1}, "sinceTime=2026-07-28T12%3A00%3A00Z&timestamps=true",
		},
		"before the first line":  {"", stamped("a"), "a\n", logOptions{tail: 7}, "tailLines=7&timestamps=true"},
		"with words of no line":  {"no space left\n", stamped("a"), "no space left\na\n", logOptions{tail: -1}, "timestamps=true"},
		"with times in disorder": {stamped("a", "b") + stamped("c"), stamped("a", "b", "d"), "a\nb\nc\nd\n", logOptions{tail: -1}, "sinceTime=2026-07-28T12%3A00%3A00Z&timestamps=true"},
	} {
		t.Run(name, func(t *testing.T) {
			e, out, _ := typed("", table.Screen{})
			test.options.follow = true
			l := &logs{environment: e, pods: kube.CoreV1().Pods("a"), options: test.options, seen: map[string]bool{}}
			s.asked = nil
			pod, place := runningPod("p"), &follow.Place{}
			for _, log := range []string{test.first, test.again} {
				s.logs["p"], s.breaks = log, true
				if err := l.show(t.Context(), &pod, place); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := "p?container=mcp-server&follow=true&" + test.asked; s.asked[1] != want {
				t.Errorf("asked for %s, want %s", s.asked[1], want)
			}
		})
	}
}
