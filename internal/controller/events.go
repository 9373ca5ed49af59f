package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/text"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Actions and reasons of Events, beside the reasons of conditions.
const (
	actionReconcile = "Reconcile"
	actionProbe     = "Probe"
	actionRotate    = "RotateKey"

	reasonCatalogFlapping  = "CatalogFlapping"
	reasonCatalogConflict  = "CatalogConflict"
	reasonCatalogChanged   = "CatalogChanged"
	reasonSessionsFull     = "SessionsFull"
	reasonSessionsConflict = "SessionsConflict"
	reasonServerCrashes    = "ServerCrashes"
	reasonAdapterOld       = "AdapterOld"
	reasonKindNotServed    = "KindNotServed"
	reasonImageLate        = "ImageLate"
	reasonIssuerTrouble    = "IssuerTrouble"
	reasonExposed          = "ExposedWithoutAuth"
	reasonPlaintextTokens  = "PlaintextTokens"
	reasonDrainsPileUp     = "DrainsPileUp"
	reasonKeyRotated       = "KeyRotated"
	noteBytes              = 1000

	reasonKeyRotationBlocked = "KeyRotationBlocked"
)

// event is something that users should know.
type event struct {
	kind   string
	reason string
	action string
	note   string
}

// transitions are what has changed between two statuses and is worth an Event.
func transitions(before, after *mcpv1alpha1.MCPServerStatus) []event {
	events := conditionTransitions(before, after)
	if before.Catalog != nil && after.Catalog != nil && before.Catalog.Digest != after.Catalog.Digest {
		note := text.Cut(catalogChange(before.Catalog, after.Catalog), noteBytes)
		events = append(events, event{corev1.EventTypeNormal, reasonCatalogChanged, actionProbe, note})
	}
	return events
}

// conditionTransitions are the changes of conditions that are worth an Event.
func conditionTransitions(before, after *mcpv1alpha1.MCPServerStatus) []event {
	var events []event
	add := func(kind string, why *metav1.Condition) {
		events = append(events, event{kind, why.Reason, actionReconcile, text.Cut(why.Message, noteBytes)})
	}
	stalled := changed(before, after, mcpv1alpha1.ConditionStalled)
	if stalled != nil {
		add(corev1.EventTypeWarning, stalled)
	}
	if ready := changed(before, after, mcpv1alpha1.ConditionReady); ready != nil {
		switch {
		case ready.Status == metav1.ConditionTrue:
			add(corev1.EventTypeNormal, ready)
		case meta.IsStatusConditionTrue(before.Conditions, mcpv1alpha1.ConditionReady) && stalled == nil && !wanted(ready.Reason):
			add(corev1.EventTypeWarning, ready)
		}
	}
	if available := changed(before, after, mcpv1alpha1.ConditionAvailable); available != nil && wanted(available.Reason) {
		add(corev1.EventTypeNormal, available)
	}
	return events
}

// changed is a condition as it is now, if it is there and was another before.
func changed(before, after *mcpv1alpha1.MCPServerStatus, name string) *metav1.Condition {
	was, is := meta.FindStatusCondition(before.Conditions, name), meta.FindStatusCondition(after.Conditions, name)
	if was != nil && is != nil && was.Status == is.Status && was.Reason == is.Reason {
		return nil
	}
	return is
}

// wanted says whether a server has no pods because the user wants none.
func wanted(reason string) bool {
	return reason == mcpv1alpha1.ReasonSuspended || reason == mcpv1alpha1.ReasonScaledToZero
}

// catalogChange says in a sentence how what a server offers has changed.
func catalogChange(before, after *mcpv1alpha1.Catalog) string {
	names := func(tools []mcpv1alpha1.CatalogEntry) []string {
		var all []string
		for i := range tools {
			all = append(all, tools[i].Name)
		}
		return all
	}
	if before.Truncated || after.Truncated { // then a tool that is not listed may be there
		return fmt.Sprintf("what the server offers has changed: %d tools in all", after.Counts.Tools)
	}
	old, current := names(before.Tools), names(after.Tools)
	var parts []string
	if added := without(current, old); len(added) > 0 {
		parts = append(parts, "new tools: "+strings.Join(added, ", "))
	}
	if removed := without(old, current); len(removed) > 0 {
		parts = append(parts, "tools gone: "+strings.Join(removed, ", "))
	}
	if len(parts) == 0 {
		parts = append(parts, "the same tools, with other descriptions or schemas, or other prompts or resources")
	}
	parts = append(parts, fmt.Sprintf("%d tools in all", after.Counts.Tools))
	return "what the server offers has changed: " + strings.Join(parts, "; ")
}

func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(others, name) })
}
