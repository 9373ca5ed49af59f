package adapterapi

import (
	"bytes"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// AccessFile is where the ConfigMap of a server has the access document of its adapters, and the file
// that an adapter finds it in.
const AccessFile = "access.json"

// AccessVersion is that of Access. As with Settings, adapters refuse members that they do not know.
const AccessVersion = 1

// MaxAccessBytes bounds a signed document. The ConfigMap that holds it has at most 1 MiB.
const MaxAccessBytes = 448 << 10

// Access says who may call what: keys and rules. An adapter that a manager looks after serves no client
// before it has one.
type Access struct {
	Version int `json:"version"`
	// Generation orders documents: an adapter goes by the highest that it has seen. It is no generation
	// of the MCPServer, because keys change without one.
	Generation int64 `json:"generation"`
	// Server names the MCPServer, for audits.
	Server AccessServer `json:"server"`
	// Mode says whether callers need a token.
	Mode AccessMode `json:"mode"`
	// Resources are the URLs of the server, as clients know it.
	Resources []string `json:"resources,omitempty"`
	// AuthorizationServers are the issuers where a client can log in.
	AuthorizationServers []string `json:"authorizationServers,omitempty"`
	// Issuers are those whose tokens count.
	Issuers []AccessIssuer `json:"issuers,omitempty"`
	// Scopes are those that every token needs, except tokens of the cluster.
	Scopes []string `json:"scopes,omitempty"`
	// ScopeImplies has the scopes that a broader scope includes, by the broader scope.
	ScopeImplies map[string][]string `json:"scopeImplies,omitempty"`
	// Rules say who may call what. A call is allowed if one rule allows it. With mode None and without
	// any rule, everything is allowed.
	Rules []AccessRule `json:"rules,omitempty"`
	// Blocked may do nothing, whatever the rules say.
	Blocked []AccessSubject `json:"blocked,omitempty"`
	// Hidden are tools that no client sees or calls: names, or globs as in rules.
	Hidden []string `json:"hidden,omitempty"`
	// Audit says what adapters record.
	Audit AccessAudit `json:"audit"`
}

// AccessServer names an MCPServer.
type AccessServer struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// AccessMode says whether callers need a token.
type AccessMode string

// The modes.
const (
	// AccessNone asks no client for a token.
	AccessNone AccessMode = "None"
	// AccessRequired has the adapter verify a token with every request.
	AccessRequired AccessMode = "Required"
	// AccessOfServer leaves tokens to the server, which speaks HTTP and checks them itself.
	AccessOfServer AccessMode = "Server"
)

// KubernetesIssuer is the name of the issuer of the cluster's ServiceAccount tokens. The names of its
// users and groups have no prefix.
const KubernetesIssuer = "kubernetes"

// Groups that callers are in, whatever their tokens say.
const (
	GroupAuthenticated   = "system:authenticated"
	GroupUnauthenticated = "system:unauthenticated"
)

// AccessIssuer is an issuer of tokens with its keys.
type AccessIssuer struct {
	// Name is the prefix of its users, groups and clients. KubernetesIssuer names that of the cluster.
	Name string `json:"name"`
	// Issuer is the claim iss, exactly.
	Issuer string `json:"issuer"`
	// Audiences are what the claim aud must have one of.
	Audiences []string `json:"audiences"`
	// MaxLifetimeSeconds bounds exp minus iat.
	MaxLifetimeSeconds int64 `json:"maxLifetimeSeconds"`
	// Claims are where its tokens have what a caller is named by.
	Claims AccessClaims `json:"claims"`
	// Keys are its public keys, each a JWK. An issuer that was never reached has none.
	Keys []json.RawMessage `json:"keys,omitempty"`
}

// AccessClaims are the paths of claims, with a dot between members, as in realm_access.roles.
type AccessClaims struct {
	User   string `json:"user"`
	Groups string `json:"groups,omitempty"`
	Client string `json:"client,omitempty"`
}

// AccessRule allows its subjects to use what it names.
type AccessRule struct {
	Subjects []AccessSubject `json:"subjects"`
	// Tools and Prompts are names, or names with * at one end or at both.
	Tools   []string `json:"tools,omitempty"`
	Prompts []string `json:"prompts,omitempty"`
	// Resources are URIs, or prefixes of URIs that end with /, or * for all.
	Resources []string `json:"resources,omitempty"`
	// Scopes are what the token needs besides.
	Scopes []string `json:"scopes,omitempty"`
}

// AccessSubject is a caller, or a group of callers, by its full name, such as corp:alice or
// system:serviceaccount:agents:triage.
type AccessSubject struct {
	Kind AccessSubjectKind `json:"kind"`
	Name string            `json:"name"`
}

// AccessSubjectKind is what a subject names.
type AccessSubjectKind string

// The kinds of subjects.
const (
	SubjectUser   AccessSubjectKind = "User"
	SubjectGroup  AccessSubjectKind = "Group"
	SubjectClient AccessSubjectKind = "Client"
)

// AccessAudit says what adapters record, and what they do if they cannot.
type AccessAudit struct {
	Level    AuditLevel    `json:"level"`
	WhenFull AuditWhenFull `json:"whenFull"`
}

// AuditLevel is how much adapters record.
type AuditLevel string

// AuditWhenFull is what adapters do with a request while they cannot record it.
type AuditWhenFull string

// The levels, and what to do.
const (
	AuditNone     AuditLevel    = "None"
	AuditMetadata AuditLevel    = "Metadata"
	AuditDrop     AuditWhenFull = "Drop"   // serve the request, and count the lost line
	AuditRefuse   AuditWhenFull = "Refuse" // refuse the request
)

// signedAccess is a document as it is stored and sent. The MAC is over the bytes of the document, as they
// stand here.
type signedAccess struct {
	MAC    string          `json:"mac"`
	Access json.RawMessage `json:"access"`
}

// ErrAccessTooLarge refuses to sign a document that adapters would not take for its size.
var ErrAccessTooLarge = errors.New("the document is too large")

// Sign makes the document that adapters with the key take. The same Access and key always make the same
// text.
func (a Access) Sign(key Key) (Document, error) {
	plain, err := json.MarshalIndent(a, "  ", "  ")
	if err != nil {
		return Document{}, fmt.Errorf("encode access: %w", err)
	}
	var text bytes.Buffer
	text.WriteString("{\n  \"mac\": \"" + encoding.EncodeToString(accessMAC(key, plain)) + "\",\n  \"access\": ")
	text.Write(plain)
	text.WriteString("\n}\n")
	if text.Len() > MaxAccessBytes {
		return Document{}, fmt.Errorf("encode access: %w: %d bytes, want at most %d", ErrAccessTooLarge, text.Len(), MaxAccessBytes)
	}
	return Document{a.Generation, SettingsDigest(text.Bytes()), text.String()}, nil
}

func accessMAC(key Key, document []byte) []byte {
	return Proof{key: key.Derive(UseAccess)}.mac("access", document)
}

// ErrAccessUnsigned refuses a document that no holder of the server's key has made.
var ErrAccessUnsigned = errors.New("the signature is not that of the server's key")

// OpenAccess reads a signed document. It takes all of it or nothing. Its errors wrap ErrAccessUnsigned if
// the signature is wrong.
func (r Keyring) OpenAccess(text []byte) (Access, error) {
	if len(text) > MaxAccessBytes {
		return Access{}, fmt.Errorf("decode access: %d bytes, want at most %d", len(text), MaxAccessBytes)
	}
	var signed signedAccess
	if err := decodeWhole(text, &signed); err != nil {
		return Access{}, fmt.Errorf("decode access: %w", err)
	}
	presented, err := encoding.Strict().DecodeString(signed.MAC)
	if err != nil || !slices.ContainsFunc(r.All(), func(key Key) bool { return hmac.Equal(presented, accessMAC(key, signed.Access)) }) {
		return Access{}, fmt.Errorf("decode access: %w", ErrAccessUnsigned)
	}
	return DecodeAccess(signed.Access)
}

// DecodeAccess reads a document without a signature.
func DecodeAccess(text []byte) (Access, error) {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Access{}, fmt.Errorf("decode access: %w", plain(err))
	}
	switch {
	case head.Version == nil:
		return Access{}, errors.New("decode access: version is missing")
	case *head.Version != AccessVersion:
		return Access{}, fmt.Errorf("decode access: version is %d, and this adapter reads %d", *head.Version, AccessVersion)
	}
	var access Access
	if err := decodeWhole(text, &access); err != nil {
		return Access{}, fmt.Errorf("decode access: %w", err)
	}
	if err := access.Check(); err != nil {
		return Access{}, fmt.Errorf("decode access: %w", err)
	}
	return access, nil
}

// decodeWhole decodes one JSON value, all of whose members must be known.
func decodeWhole(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return plain(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) { // More takes a bracket for the end
		return errors.New("more than one value")
	}
	return nil
}

// Check says why no adapter takes a document; nil if it makes sense to all that read its version.
func (a *Access) Check() error {
	problems := []error{
		a.checkWords(),
		a.checkIssuers(),
		a.checkRules(),
	}
	if a.Generation < 1 {
		problems = append(problems, fmt.Errorf("generation is %d, want at least 1", a.Generation))
	}
	// Without a rule no caller may do anything, and without an issuer no caller can authenticate. Both mean
	// that part of the document is lost.
	if a.Mode == AccessRequired && (len(a.Rules) == 0 || len(a.Issuers) == 0 || len(a.Resources) == 0) {
		problems = append(problems, errors.New("mode Required needs rules, issuers and resources"))
	}
	return errors.Join(problems...)
}

// checkWords checks the members that have one of a few values.
func (a *Access) checkWords() error {
	var problems []error
	if !slices.Contains([]AccessMode{AccessNone, AccessRequired, AccessOfServer}, a.Mode) {
		problems = append(problems, fmt.Errorf("mode is %q, want None, Required or Server", a.Mode))
	}
	if !slices.Contains([]AuditLevel{AuditNone, AuditMetadata}, a.Audit.Level) {
		problems = append(problems, fmt.Errorf("audit.level is %q, want None or Metadata", a.Audit.Level))
	}
	if !slices.Contains([]AuditWhenFull{AuditDrop, AuditRefuse}, a.Audit.WhenFull) {
		problems = append(problems, fmt.Errorf("audit.whenFull is %q, want Drop or Refuse", a.Audit.WhenFull))
	}
	return errors.Join(problems...)
}

func (a *Access) checkIssuers() error {
	var problems []error
	for i := range a.Issuers {
		if issuer := &a.Issuers[i]; issuer.Name == "" || issuer.Issuer == "" || len(issuer.Audiences) == 0 || issuer.MaxLifetimeSeconds <= 0 || issuer.Claims.User == "" {
			problems = append(problems, fmt.Errorf("issuers[%d] needs name, issuer, audiences, maxLifetimeSeconds and claims.user", i))
		}
	}
	return errors.Join(problems...)
}

func (a *Access) checkRules() error {
	var problems []error
	for i := range a.Rules {
		if err := checkSubjects(a.Rules[i].Subjects); err != nil || len(a.Rules[i].Subjects) == 0 {
			problems = append(problems, fmt.Errorf("rules[%d].subjects is empty, or has one without a known kind and a name", i))
		}
	}
	if err := checkSubjects(a.Blocked); err != nil {
		problems = append(problems, fmt.Errorf("blocked: %w", err))
	}
	return errors.Join(problems...)
}

func checkSubjects(subjects []AccessSubject) error {
	for i, subject := range subjects {
		if subject.Name == "" || !slices.Contains([]AccessSubjectKind{SubjectUser, SubjectGroup, SubjectClient}, subject.Kind) {
			return fmt.Errorf("subject %d has no known kind and name", i)
		}
	}
	return nil
}

// AccessState says which access document an adapter goes by. It is part of a report, and the answer to a
// push.
type AccessState struct {
	// Version is the newest version of Access that the adapter reads.
	Version int `json:"version"`
	// Generation and Digest are those of the document in effect; zero and empty while there is none.
	Generation int64  `json:"generation"`
	Digest     string `json:"digest,omitempty"`
	// UnknownKeys names the issuers of tokens whose key the adapter did not find in the document. The
	// manager fetches their keys again.
	UnknownKeys []string `json:"unknownKeys,omitempty"`
}

// Lacks says whether an adapter in this state should be sent the document. One that has a newer document
// has it from a manager that knows better.
func (s AccessState) Lacks(document Document) bool {
	return document.Digest != "" && s.Digest != document.Digest && s.Generation <= document.Generation
}

// AccessPushSubject is a push of an access document, as SettingsSubject is for settings.
func AccessPushSubject(podUID string) Subject {
	return Subject{Use: UseAccess, PodUID: podUID, Method: "PUT", Path: PathAccess}
}
