package registry

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
)

// keys are the credentials that pull Secrets have for an image.
type keys struct {
	host   string
	fit    []authn.AuthConfig
	broken []string // names of Secrets with something that cannot be read
}

// entry are credentials with the place that they are for.
type entry struct {
	place string // host, or host and path
	auth  authn.AuthConfig
}

// keysFor finds the credentials for a repository the way the kubelet does: the more
// specific place first, and among equals in the order of the Secrets.
func keysFor(repository string, secrets []corev1.Secret) keys {
	host, _, _ := strings.Cut(repository, "/")
	found := keys{host: host}
	var entries []entry
	for i := range secrets {
		read, ok := entriesOf(&secrets[i])
		if !ok {
			found.broken = append(found.broken, shortened(secrets[i].Name))
		}
		entries = append(entries, read...)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(b.place, a.place) })
	for _, e := range entries {
		if matches(e.place, repository) {
			found.add(e.auth)
		}
	}
	if len(found.fit) == 0 && host == "docker.io" {
		for _, e := range entries {
			if e.place == "index.docker.io" { // what docker login writes
				found.add(e.auth)
			}
		}
	}
	return found
}

func (k *keys) add(auth authn.AuthConfig) {
	if len(k.fit) < maxCredentials && !slices.Contains(k.fit, auth) {
		k.fit = append(k.fit, auth)
	}
}

// candidates are the credentials to try, in this order. Like the kubelet, the manager makes
// no anonymous request if it has credentials.
func (k *keys) candidates() []authn.Authenticator {
	if len(k.fit) == 0 {
		return []authn.Authenticator{authn.Anonymous}
	}
	candidates := make([]authn.Authenticator, 0, len(k.fit))
	for _, auth := range k.fit {
		candidates = append(candidates, authn.FromConfig(auth))
	}
	return candidates
}

// hint tells the user, after a denied request, what the pull Secrets contain.
func (k *keys) hint() string {
	hint := "; no pull secret has credentials for " + k.host
	if len(k.fit) > 0 {
		hint = "; it does not accept those that the pull secrets have for " + k.host
	}
	if len(k.broken) > 0 {
		hint += "; pull secrets that cannot be read: " + strings.Join(k.broken, ", ")
	}
	return hint
}

// entriesOf reads the credentials of a Secret, and says whether all could be read.
func entriesOf(secret *corev1.Secret) ([]entry, bool) {
	var raw map[string]json.RawMessage
	switch secret.Type {
	case corev1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]json.RawMessage `json:"auths"`
		}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config) != nil {
			return nil, false
		}
		raw = config.Auths
	case corev1.SecretTypeDockercfg:
		if json.Unmarshal(secret.Data[corev1.DockerConfigKey], &raw) != nil {
			return nil, false
		}
	default:
		return nil, false
	}
	entries, ok := make([]entry, 0, len(raw)), true
	for _, place := range slices.Sorted(maps.Keys(raw)) {
		e, err := entryOf(place, raw[place])
		if err != nil {
			ok = false
		} else if e.auth != (authn.AuthConfig{}) {
			entries = append(entries, e)
		}
	}
	return entries, ok
}

// entryOf reads one entry. Its place may have a scheme, and the path of the API.
func entryOf(place string, content json.RawMessage) (entry, error) {
	var e entry
	if err := json.Unmarshal(content, &e.auth); err != nil {
		return e, err
	}
	if !strings.HasPrefix(place, "https://") && !strings.HasPrefix(place, "http://") {
		place = "https://" + place
	}
	parsed, err := url.Parse(place)
	if err != nil {
		return e, err
	}
	directory := parsed.Path
	if strings.HasPrefix(directory, "/v1/") || strings.HasPrefix(directory, "/v2/") {
		directory = directory[len("/v1"):]
	}
	if directory == "/" {
		directory = ""
	}
	e.place = parsed.Host + directory
	return e, nil
}

// matches says whether credentials for a place are for a repository: each part of the
// host's name may be a pattern, the port is the same, and the path begins with that of
// the place.
func matches(place, repository string) bool {
	placeHost, placePath, _ := strings.Cut(place, "/")
	host, directory, _ := strings.Cut(repository, "/")
	if !strings.HasPrefix(directory, placePath) {
		return false
	}
	placeParts, placePort := splitHost(placeHost)
	parts, port := splitHost(host)
	if port != placePort || len(parts) != len(placeParts) {
		return false
	}
	for i, pattern := range placeParts {
		if ok, err := path.Match(pattern, parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func splitHost(host string) (parts []string, port string) {
	if name, number, err := net.SplitHostPort(host); err == nil {
		host, port = name, number
	}
	return strings.Split(host, "."), port
}
