package token

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// Leeway is how far the clocks of the issuer and of the adapter may be apart.
const Leeway = 30 * time.Second

// latestDate is the end of the year 9999, in seconds: the last that every part of the adapter can print.
const latestDate = 253402300799

// check says whether a token with these claims counts here and now, and until when.
func (i *issuer) check(claims object, now time.Time) (expires time.Time, refusal *Error) {
	if _, bound := claims["cnf"]; bound {
		return time.Time{}, &Error{Reason: Bound}
	}
	expires, refusal = i.checkDates(claims, now)
	if refusal != nil {
		return time.Time{}, refusal
	}
	if reason := i.checkAudience(claims); reason != "" {
		return time.Time{}, &Error{Reason: reason}
	}
	return expires, nil
}

func (i *issuer) checkDates(claims object, now time.Time) (expires time.Time, refusal *Error) {
	expires, validExpires := date(claims["exp"])
	issued, validIssued := date(claims["iat"])
	notBefore := issued
	validNotBefore := true
	if value, present := claims["nbf"]; present {
		notBefore, validNotBefore = date(value)
	}
	if !validExpires || !validIssued || !validNotBefore || !issued.Before(expires) {
		return time.Time{}, &Error{Reason: Claims}
	}
	if late := now.Sub(expires); late >= Leeway {
		return time.Time{}, &Error{Reason: Expired, Off: late}
	}
	if early := max(notBefore.Sub(now), issued.Sub(now)); early > Leeway {
		return time.Time{}, &Error{Reason: NotYet, Off: early}
	}
	if expires.Sub(issued) > i.maxLifetime {
		return time.Time{}, &Error{Reason: Lifetime}
	}
	return expires, nil
}

// date reads a number of seconds, which may have a fraction.
func date(value any) (time.Time, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || seconds < 0 || seconds > latestDate {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(math.Round(seconds * 1000))), true
}

// checkAudience looks for one of the issuer's audiences in aud, a string or a list of strings.
func (i *issuer) checkAudience(claims object) Reason {
	value, present := claims["aud"]
	if !present {
		return Audience
	}
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	found := false
	for _, element := range list {
		audience, isText := element.(string)
		if !isText {
			return Claims
		}
		found = found || i.audiences[canonicalAudience(audience)]
	}
	if !found {
		return Audience
	}
	return ""
}

// canonicalAudience makes URLs equal that differ by the case of scheme and host, or by one slash at the
// end. It leaves alone what is no URL. It does not parse the URL, because that would make more of them
// equal.
func canonicalAudience(audience string) string {
	scheme, rest, isURL := strings.Cut(audience, "://")
	if !isURL || !isScheme(scheme) {
		return audience
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, path := rest[:end], rest[end:]
	if authority == "" {
		return audience
	}
	if !strings.ContainsAny(path, "?#") {
		path = strings.TrimSuffix(path, "/")
	}
	host := strings.LastIndexByte(authority, '@') + 1
	return lower(scheme) + "://" + authority[:host] + lower(authority[host:]) + path
}

func isScheme(text string) bool {
	for i := range len(text) {
		c := text[i] | 0x20
		isLetter := 'a' <= c && c <= 'z'
		if !isLetter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(text[i]))) {
			return false
		}
	}
	return text != ""
}

// lower changes the letters of ASCII only: what others of Unicode fold to depends on who is asked.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
