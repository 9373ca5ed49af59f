package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/text"
)

// forms are what a value is in a program, as a whole.
func forms(value string) []string {
	return []string{
		value, strings.TrimSpace(value), text.Line(value, 3*len(value)),
		strings.ReplaceAll(value, "$$", "$"), // which is what Kubernetes makes of it
	}
}

// credentials matches what has a scheme before the credential itself.
var credentials = regexp.MustCompile(`(?i)^(?:bearer|basic|token)\s+(\S+)$`)

// urls matches URLs in a text.
var urls = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`]+")

// parts are what of a value can stand alone: a program may write the password of a URL, and not the URL.
func parts(value string) []string {
	const overhead = 64 << 10
	f := finder{budget: 4*len(value) + overhead}
	f.look(value)
	return f.found
}

// finder finds the parts of one value.
type finder struct {
	found  []string
	budget int // bytes that settings may still have
}

func (f *finder) look(value string) {
	if strings.ContainsAny(value, "\r\n") {
		for line := range strings.Lines(value) {
			f.found = append(f.found, strings.TrimSpace(line))
		}
	}
	if match := credentials.FindStringSubmatch(strings.TrimSpace(value)); match != nil {
		f.found = append(f.found, match[1])
	}
	for _, address := range urls.FindAllString(value, -1) {
		f.found = append(f.found, partsOfURL(address)...)
	}
	if decoded, ok := decodeJSON(value); ok {
		f.lookInside(decoded)
	}
	if !strings.ContainsAny(value, blanks) {
		f.found = append(f.found, strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ';' })...)
	}
	f.lookForSettings(value)
}

// lookInside finds the texts and numbers in decoded JSON, and their parts. Texts that are JSON again are never deep: each
// level doubles the signs that it needs.
func (f *finder) lookInside(decoded any) {
	switch decoded := decoded.(type) {
	case string:
		f.found = append(f.found, decoded)
		f.look(decoded)
	case json.Number:
		f.found = append(f.found, decoded.String())
	case []any:
		for _, item := range decoded {
			f.lookInside(item)
		}
	case map[string]any:
		for _, item := range decoded {
			f.lookInside(item)
		}
	}
}

// partsOfURL are the user information and the values of the query of a URL.
func partsOfURL(address string) []string {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil
	}
	var found []string
	if parsed.User != nil {
		password, _ := parsed.User.Password()
		found = append(found, parsed.User.Username(), password)
	}
	for _, values := range parsed.Query() {
		found = append(found, values...)
	}
	return found
}

const (
	blanks = " \t\r\n"
	quotes = "\"'`"
	ends   = blanks + quotes + ";&," // what ends a setting in a text
)

// lookForSettings finds the texts that follow "=" and ":". In a value without ends they overlap: the budget keeps a large
// value of such signs from taking much more memory than another.
func (f *finder) lookForSettings(value string) {
	for i := 0; i < len(value) && f.budget > 0; i++ {
		if value[i] == '=' || value[i] == ':' {
			part := following(value[i+1:])
			f.budget -= len(part)
			f.found = append(f.found, settings(part)...)
		}
	}
}

// following is the setting that a text begins with. It may be quoted.
func following(words string) string {
	words = strings.TrimLeft(words, " \t")
	if words != "" && strings.IndexByte(quotes, words[0]) >= 0 {
		content, _, _ := strings.Cut(words[1:], words[:1])
		return content
	}
	if end := strings.IndexAny(words, ends); end >= 0 {
		return words[:end]
	}
	return words
}

// settings are a setting, and what it is without brackets, without escapes of URLs, and before the host.
func settings(part string) []string {
	if len(part) < shortest {
		return nil
	}
	found := []string{part, strings.TrimRight(part, ")]}>")}
	for _, unescape := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if unescaped, err := unescape(part); err == nil {
			found = append(found, unescaped)
		}
	}
	if at := strings.LastIndexByte(part, '@'); at >= 0 {
		user := strings.TrimLeft(part[:at], "/")
		name, _, _ := strings.Cut(user, ":")
		found = append(found, user, name)
	}
	return found
}

// quoted matches a quoted text, and attached a flag of one letter with its value, which has more than letters: those may
// be a flag with one dash.
var (
	quoted   = regexp.MustCompile(`"([^"]+)"|'([^']+)'`)
	attached = regexp.MustCompile(`^-[A-Za-z]([^=]*[^=A-Za-z-][^=]*)$`)
)

// wordsOf are the words and quoted texts of a command, which may be one text, as that of "sh -c" is.
func wordsOf(command string) []string {
	found := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(ends+"|<>()", r) })
	for _, word := range found {
		if match := attached.FindStringSubmatch(word); match != nil {
			found = append(found, match[1])
		}
	}
	for _, match := range quoted.FindAllStringSubmatch(command, -1) {
		found = append(found, match[1]+match[2])
	}
	return found
}

// decodeJSON decodes a text that is a JSON object or list. Numbers stay as they are written.
func decodeJSON(value string) (decoded any, ok bool) {
	trimmed := strings.TrimSpace(value)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return nil, false
	}
	decoder := json.NewDecoder(strings.NewReader(trimmed))
	decoder.UseNumber()
	if decoder.Decode(&decoded) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return decoded, errors.Is(err, io.EOF)
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
