//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// plainSession is a session of a client that does nothing by itself: it keeps no stream open, and sends nothing twice. One
// goroutine at a time calls tick.
type plainSession struct {
	url     string
	id      string
	owner   string // the pod that has it
	process string
	ticks   int // how many calls of tick its process has executed
}

// answer is what an entry answered to one request.
type answer struct {
	status int    // 0 if there is none
	closes bool   // the entry closes the connection
	later  string // the header Retry-After
	body   string
	err    error
	at     time.Time // when it was there
	took   time.Duration
}

func (a answer) String() string {
	return fmt.Sprintf("%s after %s: status %d, closes the connection %t, Retry-After %q, %.300s, error %v",
		a.at.Format("15:04:05.000"), a.took.Round(time.Millisecond), a.status, a.closes, a.later, a.body, a.err)
}

// answered reads the rest of an answer.
func answered(response *http.Response, began time.Time) answer {
	body, err := readAll(response)
	now := time.Now()
	return answer{response.StatusCode, response.Close, response.Header.Get("Retry-After"), body, err, now, now.Sub(began)}
}

// byEntry is a client of a pod's own address that makes a new connection for each request.
func byEntry(entry *corev1.Pod) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: gate.at(entry).dial, DisableKeepAlives: true}}
}

// byService connects through the Service, with a new connection for each request.
func byService() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: gate.dial, DisableKeepAlives: true}}
}

// begin opens a session at an entry. It may get another pod.
func begin(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod) *plainSession {
	GinkgoHelper()
	s, err := tryBegin(ctx, server, byEntry(entry))
	Expect(err).NotTo(HaveOccurred())
	return s
}

// beginIn opens a session that a certain pod has.
func beginIn(ctx context.Context, server *mcpv1alpha1.MCPServer, pod *corev1.Pod) *plainSession {
	GinkgoHelper()
	s := begin(ctx, server, pod)
	Expect(s.owner).To(Equal(pod.Name), "a pod that serves and has room keeps a session that begins there")
	return s
}

func tryBegin(ctx context.Context, server *mcpv1alpha1.MCPServer, client *http.Client) (*plainSession, error) {
	s := &plainSession{url: server.Status.Address.URL}
	status, header, body, err := post(ctx, client, s.url, initializeRequest, nil)
	if err := verdict("initialize", status, body, err); err != nil {
		return nil, err
	}
	s.id = header.Get("Mcp-Session-Id")
	status, _, body, err = post(ctx, client, s.url, initialized, s.headers())
	if err != nil || status != http.StatusAccepted {
		return nil, fmt.Errorf("notifications/initialized: %d %.300s, %w", status, body, err)
	}
	return s, s.tick(ctx, client)
}

func (s *plainSession) headers() map[string]string {
	return map[string]string{"Mcp-Session-Id": s.id, "Mcp-Protocol-Version": "2025-11-25"}
}

// tickText is what tick answers: host, name of the process, calls that it has executed, and the word of this one.
var tickText = regexp.MustCompile(`"text":"(\S+) (\w+) (\d+) ([^"]+)"`)

// tick calls tick, and compares the answer with those before.
func (s *plainSession) tick(ctx context.Context, client *http.Client) error {
	word := strconv.Itoa(s.ticks + 1)
	status, _, body, err := post(ctx, client, s.url, toolCall("tick", `{"text":"`+word+`"}`), s.headers())
	if err := verdict("tick", status, body, err); err != nil {
		return err
	}
	said := tickText.FindStringSubmatch(body)
	if said == nil || said[3] != word || said[4] != word || s.process != "" && s.process != said[2] {
		return fmt.Errorf("call %s of a session of process %q was answered %.300s", word, s.process, body)
	}
	s.owner, s.process = said[1], said[2]
	s.ticks++
	return nil
}

// toolCall is a call that asks for progress.
func toolCall(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `,"_meta":{"progressToken":1}}}`
}

// ping asks for something that changes nothing, so that it does not matter whether it was executed.
func (s *plainSession) ping(ctx context.Context, entry *corev1.Pod) answer {
	// With a connection that may be kept, so that "Connection: close" of the answer is the adapter's own.
	transport := &http.Transport{DialContext: gate.at(entry).dial}
	defer transport.CloseIdleConnections()
	began := time.Now()
	response, err := send(ctx, &http.Client{Transport: transport}, s.url, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, s.headers())
	if err != nil {
		return answer{err: err, at: time.Now(), took: time.Since(began)}
	}
	return answered(response, began)
}

// end ends the session.
func (s *plainSession) end(ctx context.Context, client *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.url, http.NoBody)
	if err != nil {
		return err
	}
	for name, value := range s.headers() {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("DELETE: %s, %w", response.Status, err)
	}
	return nil
}

// podNamed is the pod of that name, and all others.
func podNamed(list []corev1.Pod, name string) (found *corev1.Pod, others []corev1.Pod) {
	GinkgoHelper()
	for i := range list {
		if list[i].Name == name {
			found = &list[i]
		} else {
			others = append(others, list[i])
		}
	}
	Expect(found).NotTo(BeNil(), "no pod %s", name)
	return found, others
}
