package report

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/text"
)

// shortest is how many bytes a value must have to be looked for in texts. Shorter ones are part of other words.
const shortest = 6

// ellipsis ends a text that the operator has cut, perhaps in the middle of a value.
const ellipsis = "…"

// Values are what must not be in any text of a report.
type Values struct {
	known   map[string]bool
	byStart map[string][]string // by the first bytes
	starts  [1 << 16]bool       // by the first two bytes, which tell of most places of a text that no value is there
	sorted  bool                // whether each list of byStart has the longest first
}

// NewValues returns an empty set.
func NewValues() *Values { return &Values{known: map[string]bool{}, byStart: map[string][]string{}} }

// marker stands for a value.
func marker(size int) string { return fmt.Sprintf("<removed, %d bytes>", size) }

// Add adds a value with everything that a program could make of it before it writes it: its lines, the password of a
// URL, the texts in JSON, and all of these in the encodings that logs and messages have.
func (v *Values) Add(value string) {
	for _, part := range parts(value) {
		v.add(part)
		if len(part) < shortest {
			continue
		}
		for _, encoded := range encodings(part) {
			v.add(encoded)
		}
	}
}

// AddWord is Add for a word of a command or a header, of which a program may write the second half: the value of a flag.
func (v *Values) AddWord(word string) {
	v.Add(word)
	for _, separator := range []string{"=", ": "} {
		if _, value, found := strings.Cut(word, separator); found {
			v.Add(value)
		}
	}
}

// AddAll adds what another set has.
func (v *Values) AddAll(other *Values) {
	for value := range other.known {
		v.add(value)
	}
}

func (v *Values) add(value string) {
	if len(value) < shortest || v.known[value] {
		return
	}
	v.known[value] = true
	start := value[:shortest]
	v.byStart[start] = append(v.byStart[start], value)
	v.starts[firstTwo(value)] = true
	v.sorted = false
}

// credentials matches what has a scheme before the credential itself.
var credentials = regexp.MustCompile(`(?i)^(?:bearer|basic|token)\s+(\S+)$`)

// parts are a value and what of it can stand alone.
func parts(value string) []string {
	found := []string{
		value, strings.TrimSpace(value), text.Line(value, 3*len(value)),
		strings.ReplaceAll(value, "$$", "$"), // which is what Kubernetes makes of it
	}
	if strings.ContainsAny(value, "\r\n") {
		for line := range strings.Lines(value) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	if match := credentials.FindStringSubmatch(strings.TrimSpace(value)); match != nil {
		found = append(found, match[1])
	}
	if parsed, err := url.Parse(strings.TrimSpace(value)); err == nil && parsed.User != nil {
		if password, isSet := parsed.User.Password(); isSet {
			found = append(found, password)
		}
	}
	if decoded, ok := decodeJSON(value); ok {
		found = append(found, leaves(decoded)...)
	}
	return found
}

// decodeJSON decodes a text that is a JSON object or list.
func decodeJSON(value string) (decoded any, ok bool) {
	trimmed := strings.TrimSpace(value)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return nil, false
	}
	return decoded, json.Unmarshal([]byte(trimmed), &decoded) == nil
}

// leaves are the texts in decoded JSON.
func leaves(decoded any) []string {
	switch decoded := decoded.(type) {
	case string:
		return []string{decoded}
	case []any:
		var found []string
		for _, item := range decoded {
			found = append(found, leaves(item)...)
		}
		return found
	case map[string]any:
		var found []string
		for _, key := range slices.Sorted(maps.Keys(decoded)) {
			found = append(found, leaves(decoded[key])...)
		}
		return found
	default:
		return nil
	}
}

// encodings are the forms that a value has in logs and messages of programs.
func encodings(value string) []string {
	inJSON := inner(encodeJSON(value, false))
	return []string{
		inJSON, inner(encodeJSON(value, true)), inner(encodeJSON(inJSON, false)), // the last for JSON in JSON
		inner(strconv.Quote(value)), inner(strconv.QuoteToASCII(value)),
		base64.RawStdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
		url.QueryEscape(value), url.PathEscape(value),
	}
}

func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

func encodeJSON(value string, forHTML bool) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(forHTML)
	if err := encoder.Encode(value); err != nil { // which does not happen to a text
		return strconv.Quote(value)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// Remove replaces all values in a text. What several values cover, in whole or in part, becomes one marker, so that no
// rest of a longer value stays beside a shorter one.
func (v *Values) Remove(words string) string {
	if len(v.known) == 0 {
		return words
	}
	v.sort()
	var out strings.Builder
	written, begin, end := 0, 0, 0 // what was written, and the place that is being removed
	flush := func() {
		if end > begin {
			out.WriteString(words[written:begin])
			out.WriteString(marker(end - begin))
			written = end
		}
	}
	for i := 0; i+shortest <= len(words); i++ {
		if !v.starts[firstTwo(words[i:])] {
			continue
		}
		size := v.match(words[i:])
		if size == 0 {
			continue
		}
		if i > end || end == 0 {
			flush()
			begin = i
		}
		end = max(end, i+size)
	}
	flush()
	if written == 0 {
		return words
	}
	out.WriteString(words[written:])
	return out.String()
}

func firstTwo(words string) int { return int(words[0])<<8 | int(words[1]) }

// match is how many bytes of a value a text begins with. A value may have been cut.
func (v *Values) match(words string) int {
	for _, value := range v.byStart[words[:shortest]] {
		size := commonPrefix(words, value)
		if size == len(value) || strings.HasPrefix(words[size:], ellipsis) {
			return size
		}
	}
	return 0
}

func commonPrefix(a, b string) int {
	size := 0
	for size < len(a) && size < len(b) && a[size] == b[size] {
		size++
	}
	return size
}

func (v *Values) sort() {
	if v.sorted {
		return
	}
	for _, values := range v.byStart {
		slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	}
	v.sorted = true
}
