package registry

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// maxItems bounds each list that is kept of an answer: a few bytes of JSON can
	// become a hundred times as much in memory.
	maxItems = 4096
	// maxImageBytes bounds what an image says of itself: it is kept in the cluster.
	maxImageBytes = 32 << 10
)

// manifest is what is of interest in a manifest or index.
type manifest struct {
	Config    *descriptor      `json:"config"`    // of a manifest
	Manifests list[descriptor] `json:"manifests"` // of an index
}

type descriptor struct {
	MediaType types.MediaType `json:"mediaType"`
	Digest    string          `json:"digest"`
	Size      int64           `json:"size"`
	Platform  *platform       `json:"platform"`
}

type platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
}

// list is a JSON array of at most maxItems.
type list[T any] []T

// UnmarshalJSON reads the items one by one and stops when there are too many.
func (l *list[T]) UnmarshalJSON(content []byte) error {
	if string(content) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return errNotAnImage
	}
	*l = list[T]{}
	for decoder.More() {
		if len(*l) == maxItems {
			return errTooLarge
		}
		var item T
		if err := decoder.Decode(&item); err != nil {
			return errNotAnImage
		}
		*l = append(*l, item)
	}
	return nil
}

// parseManifest reads a manifest or an index. Something that could be taken for both
// is neither: a container runtime might read it differently.
func parseManifest(content []byte) (*manifest, error) {
	parsed := &manifest{}
	if err := unmarshal(content, parsed); err != nil {
		return nil, err
	}
	if (parsed.Config == nil) == (parsed.Manifests == nil) {
		return nil, errNotAnImage
	}
	return parsed, nil
}

// choose picks the image for an architecture, or else the first for Linux, or else the
// first that does not say.
func choose(manifests []descriptor, architecture string) *descriptor {
	var linux, unknown *descriptor
	for i := range manifests {
		candidate := &manifests[i]
		switch {
		case !candidate.MediaType.IsImage() && !candidate.MediaType.IsIndex():
		case candidate.Platform == nil:
			unknown = first(unknown, candidate)
		case candidate.Platform.OS != "linux":
		case candidate.Platform.Architecture == architecture:
			return candidate
		default:
			linux = first(linux, candidate)
		}
	}
	return first(linux, unknown)
}

func first(a, b *descriptor) *descriptor {
	if a != nil {
		return a
	}
	return b
}

// parseConfig reads the config of an image.
func parseConfig(content []byte) (Image, error) {
	var parsed struct {
		Config struct {
			Entrypoint list[string]
			Cmd        list[string]
			Env        list[string]
			User       string
		} `json:"config"`
	}
	if err := unmarshal(content, &parsed); err != nil {
		return Image{}, err
	}
	image := Image{Entrypoint: parsed.Config.Entrypoint, Cmd: parsed.Config.Cmd, User: parsed.Config.User}
	for _, variable := range parsed.Config.Env {
		if home, ok := strings.CutPrefix(variable, "HOME="); ok {
			image.Home = home
		}
	}
	size := len(image.User) + len(image.Home)
	for _, word := range slices.Concat(image.Entrypoint, image.Cmd) {
		size += len(word)
	}
	if size > maxImageBytes {
		return Image{}, errTooLarge
	}
	return image, nil
}

// unmarshal reads JSON, and says in our own words what is wrong with it: those of the
// decoder quote from it.
func unmarshal(content []byte, into any) error {
	err := json.Unmarshal(content, into)
	if err == nil {
		return nil
	}
	if bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return errCompressed
	}
	return asAnswer(err)
}
