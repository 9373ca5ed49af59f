package audit

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// The annotations of a line.
const (
	// annotationAuthorization is allow, or deny if the adapter refused the request. An allowed request may
	// have failed for all that: responseStatus says so.
	annotationAuthorization = "authorization"
	// annotationReason is the class of the refusal, such as no_rule or expired. Only denied requests have
	// it.
	annotationReason = "reason"
	// annotationRule is the index of the rule in spec.access.rules that allows the request. Requests that
	// need no rule do not have it.
	annotationRule = "rule"
	// annotationAccess is the letter g and the generation of the access document that the adapter decided
	// by. It is g0 if the adapter had none.
	annotationAccess = "access"
	// annotationGroupsLeftOut is how many groups of the user the line does not name. It is absent if the
	// line names all.
	annotationGroupsLeftOut = "groupsLeftOut"
	// annotationActorsLeftOut is the same for the actors.
	annotationActorsLeftOut = "actorsLeftOut"
	// annotationTruncated is true if the line has only the beginning of a text before this annotation. It
	// is absent otherwise. The adapter decides by the whole text.
	annotationTruncated = "truncated"
)

// Bounds of a line.
const (
	maxCharacters = 256 // of a text
	maxGroups     = 32
	maxActors     = 8
	// otherTexts are verb, username, issuer, jti, client, subresource, namespace, name, the name of the
	// tool, address, user agent, reason and trace.
	otherTexts = 13
	// maxText is the size of a text, with quotes and a comma. The longest escape has 6 bytes.
	maxText = 6*maxCharacters + len(`"",`)
	// maxRest is more than all names of members, numbers and times have together.
	maxRest = 1 << 10
	// maxLine is more than any line has.
	maxLine = (maxGroups+maxActors+otherTexts)*maxText + maxRest
	// maxOutcome is more than a line grows when its request ends: by session, status, code, duration, another
	// generation, and why the request is denied.
	maxOutcome = 128
)

// anonymous is the caller without a verified token.
const anonymous = `{"username":"system:anonymous","groups":["` + adapterapi.GroupUnauthenticated + `"]}`

// timeLayout is that of the times in Kubernetes audits.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// line is a line in the making.
type line struct {
	bytes     []byte
	truncated bool // a text was cut
}

// appendEvent appends the line of an event, with its end. The size of the line is at most maxLine.
func appendEvent(dst []byte, id [16]byte, e *Event) []byte {
	l := line{bytes: dst}
	l.raw(`{"kind":"Event","apiVersion":"audit.slipway.dev/v1alpha1","auditID":"`)
	l.uuid(id)
	l.raw(`","stage":"ResponseComplete","requestReceivedTimestamp":"`)
	l.bytes = e.Received.UTC().AppendFormat(l.bytes, timeLayout)
	l.raw(`","stageTimestamp":"`)
	l.bytes = e.Completed.UTC().AppendFormat(l.bytes, timeLayout)
	l.raw(`","verb":`)
	l.text(e.Verb)
	l.raw(`,"user":`)
	groupsLeft, actorsLeft := l.user(e.Identity)
	l.object(e)
	l.client(e)
	l.outcome(e)
	l.raw(`,"annotations":{`)
	l.decision(e)
	l.leftOut(`,"`+annotationGroupsLeftOut+`":"`, groupsLeft)
	l.leftOut(`,"`+annotationActorsLeftOut+`":"`, actorsLeft)
	if l.truncated {
		l.raw(`,"` + annotationTruncated + `":"true"`)
	}
	l.raw(`}`)
	if e.Trace != "" {
		l.raw(`,"trace":`)
		l.text(e.Trace)
	}
	l.raw("}\n")
	return l.bytes
}

// user appends who the caller is, and returns how many groups and actors the line has no place for.
func (l *line) user(caller *identity.Identity) (groupsLeft, actorsLeft int) {
	if caller == nil {
		l.raw(anonymous)
		return 0, 0
	}
	l.raw(`{"username":`)
	l.text(caller.User)
	l.raw(`,"groups":`)
	groupsLeft = l.list(caller.Groups, maxGroups)
	l.raw(`,"extra":{"issuer":[`)
	l.text(caller.Issuer)
	l.raw(`],"jti":[`)
	l.text(caller.TokenID)
	l.raw(`],"client":[`)
	l.text(caller.Client)
	l.raw(`],"act":`)
	actorsLeft = l.list(caller.Actors, maxActors)
	l.raw(`}}`)
	return groupsLeft, actorsLeft
}

// object appends what the request is about.
func (l *line) object(e *Event) {
	l.raw(`,"objectRef":{"apiGroup":"mcp.slipway.dev","resource":"mcpservers"`)
	if e.Kind != "" {
		l.raw(`,"subresource":`)
		l.text(e.Kind)
	}
	l.raw(`,"namespace":`)
	l.text(e.Namespace)
	l.raw(`,"name":`)
	l.text(e.Server)
	if e.Kind != "" && e.Name != "" {
		switch e.Kind {
		case "tools":
			l.raw(`,"tool":`)
			l.text(e.Name)
		case "prompts":
			l.raw(`,"prompt":`)
			l.text(e.Name)
		default:
			l.raw(`,"uri":`)
			l.uri(e.Name)
		}
	}
	l.raw(`}`)
}

// client appends where the request came from.
func (l *line) client(e *Event) {
	l.raw(`,"sourceIPs":[`)
	if e.Address != "" {
		l.text(e.Address)
	}
	l.raw(`],"userAgent":`)
	l.text(e.UserAgent)
	if e.Session == "" {
		return // the error of ParseUint would be an allocation
	}
	// A text that is no number may be a session id, which is a secret.
	if number, err := strconv.ParseUint(e.Session, 10, 64); err == nil {
		l.raw(`,"session":`)
		l.bytes = strconv.AppendUint(l.bytes, number, 10)
	}
}

// outcome appends how the request ended.
func (l *line) outcome(e *Event) {
	l.raw(`,"responseStatus":{"code":`)
	l.number(int64(e.Status))
	l.raw(`,"jsonrpc":`)
	l.number(int64(e.Code))
	l.raw(`,"toolError":`)
	l.bytes = strconv.AppendBool(l.bytes, e.ToolError)
	l.raw(`},"durationMs":`)
	took := max(e.Completed.Sub(e.Received), 0).Microseconds()
	l.bytes = strconv.AppendFloat(l.bytes, float64(took)/1000, 'f', -1, 64)
}

// decision appends the annotations that say what the adapter decided, and by what.
func (l *line) decision(e *Event) {
	if e.Denied == "" {
		l.raw(`"` + annotationAuthorization + `":"allow"`)
	} else {
		l.raw(`"` + annotationAuthorization + `":"deny","` + annotationReason + `":`)
		l.text(e.Denied)
	}
	if e.Rule >= 0 {
		l.raw(`,"` + annotationRule + `":"`)
		l.number(int64(e.Rule))
		l.raw(`"`)
	}
	l.raw(`,"` + annotationAccess + `":"g`)
	l.number(e.Access)
	l.raw(`"`)
}

func (l *line) leftOut(member string, count int) {
	if count > 0 {
		l.raw(member)
		l.number(int64(count))
		l.raw(`"`)
	}
}

func (l *line) raw(json string) { l.bytes = append(l.bytes, json...) }

func (l *line) number(n int64) { l.bytes = strconv.AppendInt(l.bytes, n, 10) }

// uuid appends 16 random bytes as a UUID of version 4.
func (l *line) uuid(id [16]byte) {
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	l.bytes = hex.AppendEncode(l.bytes, id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		l.bytes = hex.AppendEncode(append(l.bytes, '-'), part)
	}
}

// list appends the first values, and returns how many it leaves out.
func (l *line) list(values []string, most int) int {
	named := values[:min(len(values), most)]
	l.raw(`[`)
	for i, value := range named {
		if i > 0 {
			l.raw(`,`)
		}
		l.text(value)
	}
	l.raw(`]`)
	return len(values) - len(named)
}

// text appends the first maxCharacters characters as a JSON string. Each byte that is not UTF-8 counts as
// a character.
func (l *line) text(s string) {
	l.raw(`"`)
	l.characters(s, maxCharacters)
	l.raw(`"`)
}

// uri is text for a URI. It leaves out user, password, query and fragment, which may be tokens and
// arguments.
func (l *line) uri(s string) {
	s, _, _ = strings.Cut(s, "?")
	s, _, _ = strings.Cut(s, "#")
	l.raw(`"`)
	room := maxCharacters
	if scheme, rest, found := strings.Cut(s, "://"); found {
		authority, _, _ := strings.Cut(rest, "/")
		room = l.characters(s[:len(scheme)+len("://")], room)
		s = rest[strings.LastIndexByte(authority, '@')+1:]
	}
	l.characters(s, room)
	l.raw(`"`)
}

// characters appends so many characters at most, without quotes, and returns for how many there is room
// then.
func (l *line) characters(s string, room int) int {
	for s != "" && room > 0 {
		plain := 0
		for plain < min(len(s), room) && isPlain(s[plain]) {
			plain++
		}
		l.raw(s[:plain])
		s, room = s[plain:], room-plain
		if s != "" && room > 0 {
			r, size := utf8.DecodeRuneInString(s)
			l.character(r, s[:size])
			s, room = s[size:], room-1
		}
	}
	l.truncated = l.truncated || s != ""
	return room
}

// isPlain reports whether a byte is a character of its own that JSON has no escape for.
func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' }

// character appends a character that needs a closer look.
func (l *line) character(r rune, encoded string) {
	switch {
	case r == '"' || r == '\\':
		l.bytes = append(l.bytes, '\\', byte(r))
	case r == utf8.RuneError && len(encoded) == 1:
		l.raw(`\ufffd`)
	case steers(r):
		const digits = "0123456789abcdef"
		l.bytes = append(l.bytes, '\\', 'u', digits[r>>12&0xf], digits[r>>8&0xf], digits[r>>4&0xf], digits[r&0xf])
	default:
		l.raw(encoded)
	}
}

// steers reports whether a character does something to a terminal, an editor or a reader of lines:
// control characters of 7 and of 8 bits, line and paragraph separators, and characters that turn or hide
// text. Those beyond the first plane are tags, which do nothing.
func steers(r rune) bool {
	return unicode.IsControl(r) || r <= 0xffff && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
