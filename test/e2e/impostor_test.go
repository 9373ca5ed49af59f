//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A pod of strangers at the address of a replica that has gone", Label("replicas"), func() {
	It("gets no byte of the requests for its sessions, which are answered 404", func(ctx SpecContext) {
		const secret, marker = "Bearer a-token-of-the-client", "marker-of-the-request"
		server := replicated(ctx, 3)
		for range replacements() {
			gone := &pods(ctx, server)[0]
			session := beginIn(ctx, server, gone)
			Expect(cluster.Delete(ctx, gone, client.GracePeriodSeconds(1))).To(Succeed())
			kubectl(ctx, gone.Namespace, "wait", "--for=delete", "pod/"+gone.Name, "--timeout=60s")
			awaitServing(ctx, server, 3)
			impostor := impostorOf(ctx, gone)
			By("telling the impostor something, which it has to note")
			tellTLS(ctx, impostor, marker)
			Eventually(captures).WithContext(ctx).WithArguments(impostor).Should(ContainElement(HaveField("Plain", BeEquivalentTo(marker))))
			before := len(captures(ctx, impostor))

			By("asking in a session of the pod that has gone, at each replica")
			entries := pods(ctx, server)
			for i := range entries {
				headers := session.headers()
				headers["Authorization"] = secret
				status, _, body, err := post(ctx, byEntry(&entries[i]), session.url, toolCall("echo", `{"text":"`+marker+`"}`), headers)
				Expect(err).NotTo(HaveOccurred())
				Expect(status).To(Equal(http.StatusNotFound), "at %s: %s", entries[i].Name, body)
			}
			By("reading what the impostor got")
			Eventually(func() []captured { return captures(ctx, impostor)[before:] }).WithContext(ctx).
				Should(HaveLen(len(entries)), "each replica connects once")
			for _, one := range captures(ctx, impostor)[before:] {
				Expect(one.Plain).To(BeEmpty(), "it was told something: %q", one.Plain)
				Expect(one.End).NotTo(Equal("closed"), "the handshake went well")
				hello, rest := firstRecord(one.Raw)
				Expect(hello).NotTo(BeEmpty(), "%q is no TLS", one.Raw)
				// An alert and a change of ciphers, for the sake of middle boxes, have 30 bytes.
				Expect(len(rest)).To(BeNumerically("<=", 64), "this is more than an alert: %q", rest)
				for _, word := range []string{secret, marker, session.id, "tools/call"} {
					Expect(bytes.Contains(one.Raw, []byte(word))).To(BeFalse(), "it has %q", word)
				}
			}
			Expect(cluster.Delete(ctx, impostor, client.GracePeriodSeconds(1))).To(Succeed())
		}
	})
})

const (
	// mostTries is how often a pod is made for an address that it does not get: another pod may come in between.
	mostTries = 5
	// peerPort is the port at which pods take the requests of other pods.
	peerPort = "16272"
)

// impostorOf returns a pod of no MCPServer that has the address and the UID of a pod that is gone.
func impostorOf(ctx context.Context, gone *corev1.Pod) *corev1.Pod {
	GinkgoHelper()
	var got []string
	for range mostTries {
		run(ctx, cluster.tool, "pin", gone.Spec.NodeName, gone.Status.PodIP)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "impostor-", Namespace: gone.Namespace},
			Spec: restricted(corev1.PodSpec{
				NodeName: gone.Spec.NodeName, TerminationGracePeriodSeconds: new(int64(1)),
				Containers: []corev1.Container{{
					Name: serverContainer, Image: images.servers(ctx), Command: []string{"/hostile", "pretend", ":" + peerPort, string(gone.UID)},
				}},
			}),
		}
		Expect(cluster.Create(ctx, pod)).To(Succeed())
		Eventually(func() string { return reload(ctx, pod).Status.PodIP }).WithContext(ctx).Should(Not(BeEmpty()))
		if pod.Status.PodIP == gone.Status.PodIP {
			Eventually(func() string { return logOf(ctx, pod) }).WithContext(ctx).Should(ContainSubstring("hostile: listening"))
			return pod
		}
		got = append(got, pod.Status.PodIP)
		Expect(cluster.Delete(ctx, pod, client.GracePeriodSeconds(1))).To(Succeed())
	}
	Fail("no pod got the address " + gone.Status.PodIP + ", but " + strings.Join(got, ", "))
	return nil
}

// captured is what an impostor got on one connection, see test/servers/hostile.
type captured struct {
	Raw   []byte `json:"raw"`
	Plain []byte `json:"plain"`
	End   string `json:"end"`
}

// captures are all connections to an impostor that are over.
func captures(ctx context.Context, impostor *corev1.Pod) (list []captured) {
	GinkgoHelper()
	for line := range strings.Lines(logOf(ctx, impostor)) {
		if text, ok := strings.CutPrefix(line, "captured: "); ok {
			var one captured
			Expect(json.Unmarshal([]byte(text), &one)).To(Succeed(), line)
			list = append(list, one)
		}
	}
	return list
}

func logOf(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	log, err := cluster.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "" // the container has not started
	}
	return string(log)
}

// tellTLS tells an impostor something, which a client would that trusts everything.
func tellTLS(ctx context.Context, impostor *corev1.Pod, text string) {
	GinkgoHelper()
	var conn net.Conn
	// A node that still has the hardware address of the pod before asks for another one within a minute.
	Eventually(func() (err error) {
		conn, err = gate.dial(ctx, "tcp", net.JoinHostPort(impostor.Status.PodIP, peerPort))
		return err
	}).WithContext(ctx).WithTimeout(time.Minute).Should(Succeed())
	Expect(conn.SetDeadline(time.Now().Add(patience))).To(Succeed())
	trusting := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	_, err := trusting.Write([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	Expect(trusting.Close()).To(Succeed())
}

// firstRecord splits what a TLS client has sent behind its first record, which must be a handshake.
func firstRecord(raw []byte) (record, rest []byte) {
	const header, handshake = 5, 22
	if len(raw) < header || raw[0] != handshake {
		return nil, raw
	}
	length := header + int(raw[3])<<8 + int(raw[4])
	if len(raw) < length {
		return nil, raw
	}
	return raw[:length], raw[length:]
}
