package report

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// object is an object of Kubernetes as an API server sends it.
type object = map[string]any

// Learn adds the values that an object has where Redact removes them.
func (v *Values) Learn(found map[string]any) {
	v.learnNames(found)
	w := walker{hide: v.learn, show: func(words string) string { return words }}
	w.whole(found)
}

func (v *Values) learn(value string, kind hiding) string {
	switch kind {
	case hideWhole:
		v.addWhole(value)
	case hideWord:
		v.AddWord(value)
	default:
		v.Add(value)
	}
	return value
}

// Redact is an object without values of Secrets, variables, commands, arguments and headers. In all its other texts, the
// known values are removed. It goes by the fields of the object, and by no name that a user gave to something.
func (v *Values) Redact(found map[string]any) map[string]any {
	w := walker{hide: func(value string, _ hiding) string { return marker(len(value)) }, show: v.Remove}
	return w.whole(found)
}

// Trim is an object without what kubectl and the API server keep in it for themselves.
func Trim(found map[string]any) map[string]any {
	made := maps.Clone(found)
	metadata, _ := found["metadata"].(object)
	if metadata = maps.Clone(metadata); metadata == nil {
		return made
	}
	made["metadata"] = metadata
	delete(metadata, "managedFields")
	annotations, _ := metadata["annotations"].(object)
	if annotations = maps.Clone(annotations); annotations != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		metadata["annotations"] = annotations
	}
	return made
}

// hiding says how a text is hidden.
type hiding int

const (
	showAll   hiding = iota
	hideValue        // a value
	hideWhole        // a value, of which a program would write all or nothing
	hideWord         // a word of a command
)

// walker goes through an object.
type walker struct {
	hide func(value string, kind hiding) string
	show func(words string) string
}

func (w walker) whole(found object) object {
	if found["kind"] == "Secret" {
		return w.secret(found)
	}
	return w.fields(found)
}

// identity are fields by which objects are found. Without them, the reader of a report could not tell what is what.
var identity = []string{"apiVersion", "kind", "type"}

// fields goes through the fields of an object, or of a part of one.
func (w walker) fields(found object) object {
	made := make(object, len(found))
	for key, value := range found {
		switch {
		case key == "managedFields":
		case key == "metadata" || key == "ownerReferences" || key == "involvedObject":
			made[key] = w.identified(value)
		case slices.Contains(identity, key):
			made[key] = value
		default:
			made[key] = w.field(key, value, found)
		}
	}
	return made
}

// field goes through a field that may have to be hidden.
func (w walker) field(key string, value any, of object) any {
	switch key {
	case "command", "args", "entrypoint", "cmd": // the last two are an image's own, in a ControllerRevision
		if of["name"] == mcpv1alpha1.ContainerAdapter { // whose words are the manager's
			return w.hidden(value, hideWhole)
		}
		return w.hidden(value, hideWord)
	case "env", "httpHeaders":
		return w.pairs(value)
	case "volumeAttributes":
		return w.hidden(value, hideValue)
	case "options": // a list in dnsConfig, and settings of a driver in flexVolume
		if settings, ok := value.(object); ok {
			return w.hidden(settings, hideValue)
		}
	case "message":
		if words, ok := value.(string); ok && of["exitCode"] != nil {
			value = wholeLines(words)
		}
	}
	return w.shown(value)
}

// lastOutput is how much of a log the kubelet copies into the status of a container that ended. The beginning may be
// the rest of a value.
const lastOutput = 2048

func wholeLines(words string) string {
	if len(words) < lastOutput {
		return words
	}
	_, rest, _ := strings.Cut(words, "\n")
	return rest
}

// pairs goes through a list of names with values. Anything else has no names, and is hidden.
func (w walker) pairs(value any) any {
	list, ok := value.([]any)
	if !ok {
		return w.hidden(value, hideValue)
	}
	made := make([]any, 0, len(list))
	for _, item := range list {
		pair, ok := item.(object)
		if !ok {
			made = append(made, w.hidden(item, hideWord))
			continue
		}
		kept := make(object, len(pair))
		for key, value := range pair {
			switch key {
			case "name":
				kept[key] = value
			case "valueFrom":
				kept[key] = w.shown(value)
			default:
				kept[key] = w.hidden(value, hideValue)
			}
		}
		made = append(made, kept)
	}
	return made
}

// hidden hides everything but the keys of objects.
func (w walker) hidden(value any, kind hiding) any {
	switch value := value.(type) {
	case nil:
		return nil
	case string:
		return w.hide(value, kind)
	case []any:
		made := make([]any, 0, len(value))
		for _, item := range value {
			made = append(made, w.hidden(item, kind))
		}
		return made
	case object:
		made := make(object, len(value))
		for key, item := range value {
			made[key] = w.hidden(item, kind)
		}
		return made
	default:
		return w.hide(fmt.Sprint(value), kind)
	}
}

// shown goes through what stays, but for known values.
func (w walker) shown(value any) any {
	switch value := value.(type) {
	case string:
		return w.show(value)
	case []any:
		made := make([]any, 0, len(value))
		for _, item := range value {
			made = append(made, w.shown(item))
		}
		return made
	case object:
		return w.fields(value)
	default:
		return value
	}
}

// identified goes through metadata or a reference, of which the names stay. There is a list of references.
func (w walker) identified(value any) any {
	if list, ok := value.([]any); ok {
		made := make([]any, 0, len(list))
		for _, item := range list {
			made = append(made, w.identified(item))
		}
		return made
	}
	metadata, ok := value.(object)
	if !ok {
		return w.shown(value)
	}
	made := make(object, len(metadata))
	for key, value := range metadata {
		switch key {
		case "managedFields":
		case "name", "namespace", "uid", "generateName", "resourceVersion", "kind", "apiVersion":
			made[key] = value
		case "annotations":
			if kept := w.annotations(value); len(kept) > 0 {
				made[key] = kept
			}
		case "ownerReferences":
			made[key] = w.identified(value)
		default:
			made[key] = w.shown(value)
		}
	}
	return made
}

// annotations goes through annotations. Tools keep whole objects there, as JSON.
func (w walker) annotations(value any) object {
	all, _ := value.(object)
	made := object{}
	for key, value := range all {
		words, _ := value.(string)
		decoded, isJSON := decodeJSON(words)
		switch {
		case key == corev1.LastAppliedConfigAnnotation:
		case isJSON:
			made[key] = w.encoded(decoded)
		default:
			made[key] = w.show(words)
		}
	}
	return made
}

// encoded goes through JSON in a text.
func (w walker) encoded(decoded any) string {
	if found, ok := decoded.(object); ok {
		decoded = w.whole(found)
	} else {
		decoded = w.shown(decoded)
	}
	encoded, err := json.Marshal(decoded)
	if err != nil { // which does not happen to what was decoded
		return marker(0)
	}
	return string(encoded)
}

// secret is a Secret with the names and sizes of its keys. Annotations of Secrets can hold a copy of the values.
func (w walker) secret(found object) object {
	made := object{}
	for _, key := range []string{"apiVersion", "kind", "type", "immutable"} {
		if value, isSet := found[key]; isSet {
			made[key] = value
		}
	}
	metadata, _ := found["metadata"].(object)
	annotations, _ := metadata["annotations"].(object)
	metadata = maps.Clone(metadata)
	delete(metadata, "annotations")
	kept, _ := w.identified(metadata).(object)
	for key, value := range annotations {
		if key == corev1.LastAppliedConfigAnnotation {
			continue
		}
		if kept["annotations"] == nil {
			kept["annotations"] = object{}
		}
		kept["annotations"].(object)[key] = w.hidden(value, hideValue)
	}
	made["metadata"] = kept
	for _, field := range []string{"data", "stringData"} {
		data, ok := found[field].(object)
		if !ok {
			continue
		}
		sizes := object{}
		for key, value := range data {
			words, _ := value.(string)
			if decoded, err := base64.StdEncoding.DecodeString(words); err == nil && field == "data" {
				words = string(decoded)
			}
			sizes[key] = w.hide(words, hideValue)
		}
		made[field] = sizes
	}
	return made
}
