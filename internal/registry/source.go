package registry

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxIndexes is how many indexes may lead to an image.
const maxIndexes = 3

var manifestTypes = strings.Join([]string{
	string(types.OCIImageIndex), string(types.OCIManifestSchema1),
	string(types.DockerManifestList), string(types.DockerManifestSchema2),
}, ", ")

// source reads from one repository, after the registry has let us in.
type source struct {
	client      *http.Client
	repository  name.Repository
	configBytes int64
}

// statusError is an answer of the registry that is not 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// root reads what a reference points to, and says which digest it has.
func (s *source) root(ctx context.Context, ref name.Reference) (*manifest, string, error) {
	content, err := s.get(ctx, "manifests", ref.Identifier(), manifestBytes)
	if err != nil {
		return nil, "", err
	}
	var digest v1.Hash
	if _, ok := ref.(name.Digest); ok {
		digest, err = verify(content, ref.Identifier())
	} else {
		digest, _, err = v1.SHA256(bytes.NewReader(content))
	}
	if err != nil {
		return nil, "", err
	}
	root, err := parseManifest(content)
	return root, digest.String(), err
}

// imageManifest goes from an index, or several, to the image for an architecture.
func (s *source) imageManifest(ctx context.Context, current *manifest, architecture string) (*manifest, error) {
	for range maxIndexes {
		if current.Config != nil {
			return current, nil
		}
		chosen := choose(current.Manifests, architecture)
		if chosen == nil {
			return nil, &answerError{NotFound, "there is no image for Linux under this name"}
		}
		if _, err := v1.NewHash(chosen.Digest); err != nil {
			return nil, errWrongDigest
		}
		content, err := s.get(ctx, "manifests", chosen.Digest, manifestBytes)
		if err != nil {
			return nil, err
		}
		if _, err := verify(content, chosen.Digest); err != nil {
			return nil, err
		}
		if current, err = parseManifest(content); err != nil {
			return nil, err
		}
	}
	if current.Config == nil {
		return nil, &answerError{Unavailable, "its index names other indexes again and again"}
	}
	return current, nil
}

// config reads an image's config.
func (s *source) config(ctx context.Context, config *descriptor) (Image, error) {
	if config.Size > s.configBytes {
		return Image{}, errTooLarge
	}
	if _, err := v1.NewHash(config.Digest); err != nil {
		return Image{}, errWrongDigest
	}
	content, err := s.get(ctx, "blobs", config.Digest, config.Size)
	if err != nil {
		return Image{}, err
	}
	if _, err := verify(content, config.Digest); err != nil {
		return Image{}, err
	}
	return parseConfig(content)
}

// get reads something of the repository that has at most limit bytes.
func (s *source) get(ctx context.Context, kind, identifier string, limit int64) ([]byte, error) {
	target := url.URL{
		Scheme: s.repository.Scheme(), Host: s.repository.RegistryStr(),
		Path: "/v2/" + s.repository.RepositoryStr() + "/" + kind + "/" + identifier,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if kind == "manifests" {
		request.Header.Set("Accept", manifestTypes)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, statusError(response.StatusCode)
	}
	if response.ContentLength > limit {
		return nil, errTooLarge
	}
	var content bytes.Buffer
	content.Grow(int(max(response.ContentLength, 0)) + bytes.MinRead)
	if _, err := content.ReadFrom(io.LimitReader(response.Body, limit+1)); err != nil {
		return nil, err
	}
	if int64(content.Len()) > limit {
		return nil, errTooLarge
	}
	return content.Bytes(), nil
}

var (
	errTooLarge    = &answerError{Unavailable, "its answer is too large for a manifest or config of an image"}
	errWrongDigest = &answerError{Unavailable, "its answer does not have the digest that was asked for"}
	errNotAnImage  = &answerError{Unavailable, "its answer is no image that can be read"}
)

// verify says whether content is what a digest names.
func verify(content []byte, digest string) (v1.Hash, error) {
	want, err := v1.NewHash(digest)
	if err != nil {
		return v1.Hash{}, errWrongDigest
	}
	hasher, err := v1.Hasher(want.Algorithm)
	if err != nil {
		return v1.Hash{}, errors.Join(errWrongDigest, err)
	}
	hasher.Write(content)
	if hex.EncodeToString(hasher.Sum(nil)) != want.Hex {
		return v1.Hash{}, errWrongDigest
	}
	return want, nil
}
