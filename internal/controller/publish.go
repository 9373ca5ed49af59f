package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// publish computes the status, writes it if it has changed, and then says what people
// should hear of. It is called also when a step has failed: the status then says so.
func (r *Reconciler) publish(ctx context.Context, s *state, failure error) error {
	if failure != nil {
		s.wait(mcpv1alpha1.ReasonRetrying, failure.Error())
	}
	observed := status.Observed{
		Server: s.server, Refusal: s.refusal, Waiting: s.waiting,
		Deployment: s.deployment, Applied: s.appliedGeneration, Template: templateName(s), Pods: s.pods, Results: s.results,
		Image: r.resolvedImage(s), Adapter: adapterStatus(s),
		StartTimeout: workload.StartTimeout(s.server), Processes: r.processesOf(s), HasAffinity: hasAffinity(s),
		Sessions: r.sessionsOf(s), SessionsLimit: sessionsLimit(s),
		URL: addressOf(s), Selector: workload.Selector(s.server),
		Now: metav1.NewTime(s.now),
	}
	if recheck := status.Recheck(observed); recheck > 0 {
		s.again(recheck)
	}
	before := s.server.Status.DeepCopy()
	next := status.Compute(observed)
	r.tellOfFlapping(s)
	r.tellOfRefusals(s)
	r.tellOfCrashes(s, status.Crashes(observed))
	r.tellOfDelay(s, &next)
	if equality.Semantic.DeepEqual(before, &next) {
		return nil
	}
	patched := s.server.DeepCopy()
	patched.Status = next
	// The lock makes sure that a status is never written over one that was computed
	// from something newer.
	patch := client.MergeFromWithOptions(s.server, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, patched, patch); err != nil {
		switch {
		case apierrors.IsNotFound(err):
			return nil // it was deleted meanwhile
		case apierrors.IsConflict(err):
			// The cache is behind. Until it shows another version, every write is a conflict.
			r.statusLag.expect(s.name, s.server.ResourceVersion, s.now)
			s.again(firstLagRetry)
			return nil
		}
		return fmt.Errorf("patch status of MCPServer %s: %w", s.name, err)
	}
	if patched.ResourceVersion == s.server.ResourceVersion {
		r.noteUnstored(ctx)
		return nil
	}
	r.statusLag.expect(s.name, s.server.ResourceVersion, s.now)
	for _, event := range transitions(before, &next, workload.Replicas(s.server)) {
		r.Events.Eventf(s.server, nil, event.kind, event.reason, event.action, "%s", event.note)
	}
	return nil
}

// addressOf is the URL of the server, or empty while there is no Service of its own. A Service
// of that name may belong to another owner, and clients would send it their tokens.
func addressOf(s *state) string {
	if !s.serviceApplied && (s.service == nil || !ownedBy(s.service, s.server)) {
		return ""
	}
	return workload.URL(s.server)
}

// noteUnstored notes a status write that the API server accepted and that changed nothing.
// The API server drops fields that the CRD lacks, so every status with such a field looks
// changed. The write brings no new version that the controller could wait for.
func (r *Reconciler) noteUnstored(ctx context.Context) {
	r.idleWrites.Inc()
	r.idleWritesSeen.Do(func() {
		log.FromContext(ctx).Info("The API server stored nothing of a status: the CRD of MCPServers may be older than this manager; " +
			"apply the CRD of this version. This is logged once; see the metric slipway_status_writes_without_effect_total")
	})
}

// What a status takes of a command: an image may name a longer one.
const (
	commandWords = 512
	commandBytes = 4096
)

// templateName is the name that pods of the rendered template carry.
func templateName(s *state) string {
	if s.rendered == nil {
		return ""
	}
	var template struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(s.rendered.Template, &template) != nil {
		return "" // the youngest pod then says
	}
	return template.Metadata.Annotations[mcpv1alpha1.AnnotationTemplate]
}

// resolvedImage is what the image of the server's pods is known to be. While there is no
// template for the present spec, that is what it was before: the command of the new spec and
// the image of the old one are not what runs.
func (r *Reconciler) resolvedImage(s *state) *mcpv1alpha1.ResolvedImage {
	if s.rendered == nil {
		return nil
	}
	if s.undecided || s.hold || s.refusal != nil {
		return s.server.Status.Image
	}
	resolved := &mcpv1alpha1.ResolvedImage{Resolution: resolutionOf(r.Registries, s)}
	for _, word := range workload.Command(s.server, s.rendered.Image) {
		if len(resolved.Command) == commandWords {
			break
		}
		resolved.Command = append(resolved.Command, cut(word, commandBytes))
	}
	if s.rendered.Image != nil {
		resolved.Digest, resolved.User = s.rendered.Image.Digest, s.rendered.Image.User
	}
	return resolved
}

func adapterStatus(s *state) *mcpv1alpha1.AdapterStatus {
	if s.rendered == nil {
		return nil
	}
	return &mcpv1alpha1.AdapterStatus{Version: s.rendered.AdapterVersion, Outdated: s.outdated}
}

// sessionsEvery is how often the number of sessions is published at most.
const sessionsEvery = time.Minute

// sessionsOf is the number of sessions to publish: the one that was published, until
// a minute has passed.
func (r *Reconciler) sessionsOf(s *state) *int32 {
	if len(s.results) == 0 {
		if len(s.pods) == 0 {
			return new(int32(0))
		}
		return s.server.Status.Sessions
	}
	published := s.server.Status.Sessions
	var open int64
	for _, result := range s.results {
		if result.Report == nil && published != nil {
			return published // until everybody has told
		}
		open += result.Sessions.Open
	}
	sum := int32(min(open, math.MaxInt32))
	if published != nil && *published == sum {
		return published
	}
	if wait := r.sessions.wait(s.name, s.now); published != nil && wait > 0 {
		s.again(wait)
		return published
	}
	r.sessions.published(s.name, s.now)
	return &sum
}

// sessionsLimit is how many sessions all pods together may have, or 0 until all have said.
func sessionsLimit(s *state) int32 {
	var limit int64
	for _, result := range s.results {
		if result.Report == nil || result.Sessions.Limit == 0 {
			return 0
		}
		limit += result.Sessions.Limit
	}
	return int32(min(limit, math.MaxInt32))
}

// sessionCounts knows when the number of sessions of each server was published.
type sessionCounts struct {
	mu   sync.Mutex
	when map[types.NamespacedName]time.Time
}

func (c *sessionCounts) wait(server types.NamespacedName, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sessionsEvery - now.Sub(c.when[server])
}

func (c *sessionCounts) published(server types.NamespacedName, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when == nil {
		c.when = map[types.NamespacedName]time.Time{}
	}
	c.when[server] = now
}

func (c *sessionCounts) forget(server types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.when, server)
}
