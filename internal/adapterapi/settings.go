package adapterapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// SettingsFile is where the ConfigMap of a server has the settings of its adapters, and
// the file that an adapter finds them in.
const SettingsFile = "settings.json"

// SettingsVersion is that of Settings. Adapters refuse members that they do not know, so
// that none takes a rule for enforced that it cannot read. So a member that is added makes
// a new version, and a manager writes for each adapter a version that it reads.
const SettingsVersion = 1

// MaxSettingsBytes bounds a document. The largest that the API allows is about half of it.
const MaxSettingsBytes = 512 << 10

// MaxVerbosity is the most that can be asked of a log.
const MaxVerbosity = 5

// Settings are what an adapter takes over while it runs. Nothing of it is in the pod
// template, so that no pod is replaced when it changes.
type Settings struct {
	Version int `json:"version"`
	// Generation orders documents: an adapter goes by the highest that it has seen. It is
	// that of the MCPServer.
	Generation int64 `json:"generation"`
	// AllowedHosts are all names that clients may use. There is always one: a list that
	// got lost must not open the server to every name.
	AllowedHosts []string `json:"allowedHosts"`
	// AllowedOrigins are the web origins that may call, besides loopback ones.
	AllowedOrigins []string `json:"allowedOrigins,omitempty"`
	// Verbosity is how much is logged.
	Verbosity int `json:"verbosity,omitempty"`
}

// Document is settings as they are stored and sent.
type Document struct {
	Generation int64
	Digest     string // of the text
	Text       string
}

// Encode makes the document. The same settings always make the same text.
func (s Settings) Encode() (Document, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return Document{}, fmt.Errorf("encode settings: %w", err)
	}
	text = append(text, '\n')
	return Document{s.Generation, SettingsDigest(text), string(text)}, nil
}

// SettingsDigest names a document by its text.
func SettingsDigest(text []byte) string {
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:16])
}

// DecodeSettings reads a document. It takes all of it or nothing, and its errors name the
// member that is wrong.
func DecodeSettings(text []byte) (Settings, error) {
	if len(text) > MaxSettingsBytes {
		return Settings{}, fmt.Errorf("decode settings: %d bytes, want at most %d", len(text), MaxSettingsBytes)
	}
	// The version comes first: what else there is depends on it.
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Settings{}, fmt.Errorf("decode settings: %w", plain(err))
	}
	switch {
	case head.Version == nil:
		return Settings{}, errors.New("decode settings: version is missing")
	case *head.Version != SettingsVersion:
		return Settings{}, fmt.Errorf("decode settings: version is %d, and this adapter reads %d", *head.Version, SettingsVersion)
	}
	var settings Settings
	if err := decodeWhole(text, &settings); err != nil {
		return Settings{}, fmt.Errorf("decode settings: %w", err)
	}
	if err := settings.check(); err != nil {
		return Settings{}, fmt.Errorf("decode settings: %w", err)
	}
	return settings, nil
}

// plain is an error of package json in the words of the document instead of Go's.
func plain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s is a JSON %s, which it cannot be", wrong.Field, wrong.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("%s is not known to this adapter", strings.Trim(name, `"`))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("the document ends too early")
	}
	return err
}

func (s *Settings) check() error {
	var problems []error
	if s.Generation < 1 {
		problems = append(problems, fmt.Errorf("generation is %d, want at least 1", s.Generation))
	}
	if len(s.AllowedHosts) == 0 {
		problems = append(problems, errors.New("allowedHosts is empty: name a host, or * for all"))
	}
	for i, host := range s.AllowedHosts {
		if host == "" {
			problems = append(problems, fmt.Errorf("allowedHosts[%d] is empty", i))
		}
	}
	for i, origin := range s.AllowedOrigins {
		if origin == "" {
			problems = append(problems, fmt.Errorf("allowedOrigins[%d] is empty", i))
		}
	}
	if s.Verbosity < 0 || s.Verbosity > MaxVerbosity {
		problems = append(problems, fmt.Errorf("verbosity is %d, want 0 to %d", s.Verbosity, MaxVerbosity))
	}
	return errors.Join(problems...)
}

// SettingsState says which settings an adapter goes by. It is part of a report, and the
// answer to a push.
type SettingsState struct {
	// Version is the newest version of Settings that the adapter reads.
	Version int `json:"version"`
	// Generation and Digest are those of the document in effect; zero and empty while the
	// adapter goes by its flags.
	Generation int64  `json:"generation"`
	Digest     string `json:"digest,omitempty"`
}

// Lacks says whether an adapter in this state should be sent the document. One that has
// a newer document has it from a manager that knows better.
func (s SettingsState) Lacks(document Document) bool {
	return document.Digest != "" && s.Digest != document.Digest && s.Generation <= document.Generation
}

// SettingsSubject is a push of settings. The proof does not cover the body, so that an
// adapter reads none before it knows whose it is; SealBody does.
func SettingsSubject(podUID string) Subject {
	return Subject{Use: UseSettings, PodUID: podUID, Method: "PUT", Path: PathSettings}
}
