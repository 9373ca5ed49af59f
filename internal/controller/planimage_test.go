package controller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/registry"
	"github.com/slipway-mcp/slipway/internal/workload"
)

func imageServer(transport mcpv1alpha1.TransportType) *mcpv1alpha1.MCPServer {
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = someServer.Namespace, someServer.Name
	server.Spec.Image, server.Spec.Transport.Type = "registry.example/image", transport
	return server
}

// What the status says about a registry's errors, with each retry.
func TestRegistryErrors(t *testing.T) {
	const commandHint = "spec.command"
	for kind, test := range map[registry.Kind]struct {
		first, later string // the reason; with "Stalled " in front where the user must act
		hasHint      bool
	}{
		registry.Unavailable:  {"ImageUnresolved", "ImageUnresolved", true},
		registry.NotFound:     {"ImageUnresolved", "Stalled ImageUnresolved", false},
		registry.Unauthorized: {"ImageUnresolved", "Stalled ImageUnresolved", true}, // only the nodes may have credentials
		registry.Refused:      {"Stalled InvalidImage", "Stalled InvalidImage", false},
		registry.Invalid:      {"Stalled InvalidImage", "Stalled InvalidImage", false},
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				isMended := false
				r := New(Options{Images: resolverFunc(func(context.Context, ImageRequest) (registry.Image, error) {
					if isMended {
						return registry.Image{Digest: "sha256:1"}, nil
					}
					return registry.Image{}, &registry.Error{Kind: kind, Detail: "DETAIL"}
				})})
				r.images.start(t.Context(), r.Notify)
				server := imageServer(mcpv1alpha1.TransportStdio)
				look := func() (*state, *registry.Image, bool) {
					s := newState(server, time.Now())
					image, ok := r.imageFor(s, workload.InputsOf(server, ""))
					synctest.Wait()
					return s, image, ok
				}
				look()
				for try := 1; try <= 4; try++ {
					s, _, ok := look()
					got, message := "", ""
					switch {
					case s.refusal != nil:
						got, message = "Stalled "+s.refusal.Reason, s.refusal.Message
					case s.waiting != nil:
						got, message = s.waiting.Reason, s.waiting.Message
					}
					want := test.later
					if try == 1 {
						want = test.first
					}
					if got != want || ok || !s.undecided {
						t.Errorf("try %d: %q, go on: %t", try, got, ok)
					}
					if !strings.Contains(message, "DETAIL") || strings.Contains(message, commandHint) != test.hasHint {
						t.Errorf("try %d: %q", try, message)
					}
					if s.requeueAfter < firstLookupPause || s.requeueAfter > lastLookupPause {
						t.Fatalf("try %d: asked again after %s", try, s.requeueAfter)
					}
					isMended = try == 4
					time.Sleep(s.requeueAfter)
					look() // which asks
				}
				if s, image, ok := look(); !ok || image == nil || s.refusal != nil || s.waiting != nil {
					t.Errorf("mended: %+v, %+v", image, s)
				}
			})
		})
	}
}

// A registry that the manager may not ask is not asked, and the user is told whose
// decision that is.
func TestForbiddenRegistry(t *testing.T) {
	for name, test := range map[string]struct {
		policy    registry.Policy
		transport mcpv1alpha1.TransportType
		command   []string
		before    *registry.Image
		want      string // part of the refusal; empty when the pods are rendered
	}{
		"disabled":                 {registry.Policy{Disabled: true}, mcpv1alpha1.TransportStdio, nil, nil, "registry.mode"},
		"disabled, with a command": {registry.Policy{Disabled: true}, mcpv1alpha1.TransportStdio, []string{"/server"}, nil, ""},
		"disabled, resolved":       {registry.Policy{Disabled: true}, mcpv1alpha1.TransportStdio, nil, &registry.Image{Digest: "sha256:1"}, ""},
		"disabled, HTTP":           {registry.Policy{Disabled: true}, mcpv1alpha1.TransportStreamableHTTP, nil, nil, ""},
		"another host":             {registry.Policy{Hosts: []string{"docker.io"}}, mcpv1alpha1.TransportStdio, nil, nil, "registry.allowedHosts"},
		"another host, HTTP":       {registry.Policy{Hosts: []string{"docker.io"}}, mcpv1alpha1.TransportSSE, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Options{Registries: test.policy, Images: resolverFunc(func(context.Context, ImageRequest) (registry.Image, error) {
					t.Error("the registry is asked")
					return registry.Image{}, nil
				})})
				r.images.start(t.Context(), r.Notify)
				server := imageServer(test.transport)
				server.Spec.Command = test.command
				s := newState(server, time.Now())
				if test.before != nil {
					s.current = &workload.Rendered{ImageName: server.Spec.Image, Image: test.before}
				}
				image, ok := r.imageFor(s, workload.InputsOf(server, ""))
				synctest.Wait()
				if image != test.before || ok != (test.want == "") || (s.refusal == nil) != ok {
					t.Fatalf("%+v, go on: %t, refusal %+v", image, ok, s.refusal)
				}
				if s.refusal != nil && (s.refusal.Reason != mcpv1alpha1.ReasonCommandUnknown ||
					!strings.Contains(s.refusal.Message, test.want) || !strings.Contains(s.refusal.Message, "set spec.command")) {
					t.Errorf("refused: %+v", s.refusal)
				}
			})
		})
	}
}

// An answer that came late counts for the next spec with the same image, even if the
// registry is silent again by then.
func TestLateAnswerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var silent atomic.Bool
		silent.Store(true)
		r := New(Options{Images: resolverFunc(func(ctx context.Context, _ ImageRequest) (registry.Image, error) {
			if silent.Load() {
				<-ctx.Done()
				return registry.Image{}, ctx.Err()
			}
			return registry.Image{User: "4711"}, nil
		})})
		r.images.start(ctx, r.Notify)
		server := imageServer(mcpv1alpha1.TransportStreamableHTTP)
		look := func() (*registry.Image, bool) {
			return r.imageFor(newState(server, time.Now()), workload.InputsOf(server, ""))
		}
		look()
		time.Sleep(imagePatience)
		if image, ok := look(); image != nil || !ok {
			t.Fatalf("%+v, go on: %t", image, ok)
		}
		silent.Store(false)
		time.Sleep(lookupTimeout + firstLookupPause)
		look()
		synctest.Wait()
		silent.Store(true)
		for _, change := range []string{"--one", "--two"} {
			server.Spec.Args = []string{change}
			look()
			time.Sleep(imagePatience)
			if image, ok := look(); !ok || image == nil || image.User != "4711" {
				t.Errorf("%s: %+v, go on: %t", change, image, ok)
			}
		}
		server.Spec.Image += ":2"
		look()
		time.Sleep(imagePatience)
		if image, ok := look(); !ok || image != nil {
			t.Errorf("of another image: %+v, go on: %t", image, ok)
		}
	})
}
