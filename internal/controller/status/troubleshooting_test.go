package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/test/quoted"
)

// The page on troubleshooting has the words that the status has about a pod, in the section for the symptom.
func TestWordsAreInTroubleshooting(t *testing.T) {
	messages, err := quoted.Messages("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	overHTTP := func(o *Observed) { o.Server.Spec.Transport.Type = mcpv1alpha1.TransportStreamableHTTP }
	for name, test := range map[string]struct {
		change  func(*Observed)
		pod     func(*corev1.Pod)
		result  prober.Result
		heading string // a part of it
	}{
		"no node": {
			pod: func(p *corev1.Pod) {
				p.Status = corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes"}}}
			},
			heading: "Pending pods",
		},
		"pull":                {pod: func(p *corev1.Pod) { serverOf(p).State = waiting("ErrImagePull", "not found") }, heading: "Image pull"},
		"registry":            {pod: func(p *corev1.Pod) { serverOf(p).State = waiting("RegistryUnavailable", "timeout") }, heading: "Image pull"},
		"never pull":          {pod: func(p *corev1.Pod) { serverOf(p).State = waiting("ErrImageNeverPull", "not present") }, heading: "Image pull"},
		"pull of the adapter": {pod: func(p *corev1.Pod) { adapterOf(p).State = waiting("ErrImagePull", "denied") }, heading: "Image pull"},
		"exit":                {pod: func(p *corev1.Pod) { serverOf(p).State = terminated(3, "Error", "no database") }, heading: "CrashLoopBackOff"},
		"kill":                {pod: func(p *corev1.Pod) { serverOf(p).State = terminated(137, "Error", "") }, heading: "exit code 137"},
		"no memory":           {pod: func(p *corev1.Pod) { serverOf(p).State = terminated(137, "OOMKilled", "") }, heading: "OOMKilled"},
		"no program":          {pod: func(p *corev1.Pod) { serverOf(p).State = terminated(128, "StartError", "exec: not found") }, heading: "CrashLoopBackOff"},
		"no memory for one":   {result: reported(adapterapi.Exited, "the server's process ended: out of memory: killed by the kernel"), heading: "OOMKilled"},
		"exit of a process":   {result: reported(adapterapi.Exited, "the server's process ended: exit code 7"), heading: "CrashLoopBackOff"},
		"silent":              {result: reported(adapterapi.Silent, "the server runs and has not answered for more than 60s"), heading: "does not answer"},
		"other protocol":      {change: overHTTP, result: reported(adapterapi.Broken, "HTTP 404"), heading: "does not answer"},
		"other port":          {change: overHTTP, result: reported(adapterapi.Unstartable, "connection refused"), heading: "does not answer"},
		"slow":                {result: failed(0, adapterapi.Starting, ""), heading: "Slow start"},
		"pulled for long":     {pod: func(p *corev1.Pod) { serverOf(p).State = waiting("PodInitializing", "") }, heading: "Slow start"},
		"key is missing":      {pod: func(p *corev1.Pod) { serverOf(p).State = waiting("CreateContainerConfigError", "no key") }, heading: "PodsNotReady"},
		"adapter ends":        {pod: func(p *corev1.Pod) { adapterOf(p).State = terminated(2, "Error", "panic") }, heading: "PodsNotReady"},
		"port of the adapter": {pod: func(p *corev1.Pod) {
			adapterOf(p).State = terminated(1, "Error", "listen tcp :16271: bind: address already in use")
		}, heading: "PodsNotReady"},
		"starting over HTTP": {
			change: overHTTP,
			pod: func(p *corev1.Pod) {
				serverOf(p).State, adapterOf(p).State = startedAgo(time.Second), startedAgo(time.Second)
				p.CreationTimestamp = ago(time.Second)
			},
			result: failed(0, adapterapi.Unstartable, "connection refused"), heading: "Slow start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			if test.change != nil {
				test.change(o)
			}
			o.sickPod(func(p *corev1.Pod) {
				if test.pod != nil {
					test.pod(p)
				}
			})
			if test.result.Report != nil {
				o.Results = map[types.UID]prober.Result{"a": test.result}
			}
			text := find(t, o.then(), mcpv1alpha1.ConditionAvailable).Message
			for _, message := range messages {
				if strings.Contains(message.Heading, test.heading) && message.Matches(text) {
					return
				}
			}
			t.Errorf("no section on %s has a message for %q", test.heading, text)
		})
	}
}
