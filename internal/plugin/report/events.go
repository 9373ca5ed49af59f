package report

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// event is what a report has of an Event.
type event struct {
	Time     string `json:"time"`
	Type     string `json:"type,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Object   string `json:"object"`
	Message  string `json:"message,omitempty"`
	Count    int32  `json:"count,omitempty"`
	Reporter string `json:"reporter,omitempty"`

	kind, name string
	uid        types.UID
}

// namespaceEvents are the events of one namespace. Servers come sorted by namespace, so there is never more.
type namespaceEvents struct {
	namespace string
	all       []event
}

// eventsIn returns the events of a namespace, oldest first.
func (c *collector) eventsIn(ctx context.Context, namespace string) ([]event, error) {
	if c.events.namespace == namespace {
		return c.events.all, nil
	}
	c.events = namespaceEvents{namespace: namespace}
	err := c.each(ctx, corev1.SchemeGroupVersion.WithKind("Event"), namespace, func(found *unstructured.Unstructured) {
		var typed corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &typed) == nil {
			c.events.all = append(c.events.all, newEvent(&typed))
		}
	})
	slices.SortStableFunc(c.events.all, func(a, b event) int { return cmp.Compare(a.Time, b.Time) })
	return c.events.all, err
}

func newEvent(from *corev1.Event) event {
	const layout = "2006-01-02T15:04:05Z"
	when := from.LastTimestamp.Time
	if when.IsZero() {
		when = from.EventTime.Time
	}
	if from.Series != nil {
		when = from.Series.LastObservedTime.Time
	}
	about := from.InvolvedObject
	return event{
		Time: when.UTC().Format(layout), Type: from.Type, Reason: from.Reason, Message: from.Message, Count: from.Count,
		Object: about.Kind + "/" + about.Name, Reporter: cmp.Or(from.ReportingController, from.Source.Component),
		kind: about.Kind, name: about.Name, uid: about.UID,
	}
}

// addEvents writes the events of objects, and of pods of theirs that are gone.
func (c *collector) addEvents(ctx context.Context, directory, namespace string, values *Values, objects []*unstructured.Unstructured) error {
	all, err := c.eventsIn(ctx, namespace)
	if err != nil {
		return err
	}
	uids, makers := map[types.UID]bool{}, []string(nil)
	for _, object := range objects {
		uids[object.GetUID()] = true
		if object.GetKind() == "ReplicaSet" {
			makers = append(makers, object.GetName()+"-")
		}
	}
	found := []event{}
	for _, event := range all {
		isGone := event.kind == "Pod" && slices.ContainsFunc(makers, func(prefix string) bool { return strings.HasPrefix(event.name, prefix) })
		if uids[event.uid] || isGone {
			event.Message, event.Reason = values.Remove(event.Message), values.Remove(event.Reason)
			found = append(found, event)
		}
	}
	return c.archive.addYAML(directory+"/events.yaml", found)
}
