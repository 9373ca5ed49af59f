package rpc

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds nesting. Encoders do not get near it, and recursive decoders in
// servers fail somewhere above it.
const maxDepth = 1000

// syntax is a position in one JSON text. Its methods check the grammar of RFC 8259
// and move on; they never allocate and never decode.
type syntax struct {
	b     []byte
	i     int
	outer int // containers around a value that count as its nesting
}

// space skips white space. Line breaks are overwritten with blanks, in place: a
// message must be one line for a server and has no raw line break in an event.
func (s *syntax) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t':
		case '\n', '\r':
			s.b[s.i] = ' '
		default:
			return
		}
		s.i++
	}
}

// peek is the next byte, or 0 at the end; 0 itself is never valid outside a string.
func (s *syntax) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// value checks any JSON value and returns its range.
func (s *syntax) value() (Span, *Error) {
	start := s.i
	if c := s.peek(); c != '{' && c != '[' {
		err := s.scalar()
		return Span{start, s.i}, err
	}
	var nesting bitStack
	for {
		opened, err := s.token(&nesting)
		if err != nil {
			return Span{}, err
		}
		if !opened {
			if err := s.afterValue(&nesting); err != nil {
				return Span{}, err
			}
			if nesting.depth == 0 {
				return Span{start, s.i}, nil
			}
		}
		if nesting.inObject() {
			if err := s.key(); err != nil {
				return Span{}, err
			}
		}
	}
}

// token reads a scalar or an empty container, or opens a container.
func (s *syntax) token(nesting *bitStack) (opened bool, err *Error) {
	switch c := s.peek(); c {
	case '{', '[':
		if s.outer+nesting.depth == maxDepth {
			return false, syntaxError(s.i, "nesting is too deep")
		}
		s.i++
		s.space()
		if s.peek() == c+2 { // '}' and ']' are two after their opening halves
			s.i++
			return false, nil
		}
		nesting.push(c == '{')
		return true, nil
	default:
		return false, s.scalar()
	}
}

// afterValue goes over what follows a value inside containers: closing brackets,
// and one comma at most.
func (s *syntax) afterValue(nesting *bitStack) *Error {
	for nesting.depth > 0 {
		s.space()
		closing := byte(']')
		if nesting.inObject() {
			closing = '}'
		}
		switch s.peek() {
		case ',':
			s.i++
			s.space()
			return nil
		case closing:
			s.i++
			nesting.pop()
		default:
			return syntaxError(s.i, "want a comma or a closing bracket")
		}
	}
	return nil
}

// key checks a member's name and the colon after it.
func (s *syntax) key() *Error {
	if _, err := s.string(); err != nil {
		return err
	}
	return s.colon()
}

func (s *syntax) colon() *Error {
	s.space()
	if s.peek() != ':' {
		return syntaxError(s.i, "want a colon after a member's name")
	}
	s.i++
	s.space()
	return nil
}

func (s *syntax) scalar() *Error {
	switch c := s.peek(); {
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return syntaxError(s.i, "want a value")
	}
}

func (s *syntax) literal(want string) *Error {
	if len(s.b)-s.i < len(want) || string(s.b[s.i:s.i+len(want)]) != want {
		return syntaxError(s.i, "want a value")
	}
	s.i += len(want)
	return nil
}

func (s *syntax) number() *Error {
	if s.peek() == '-' {
		s.i++
	}
	if s.peek() == '0' {
		s.i++
	} else if !s.digits() {
		return syntaxError(s.i, "want a digit")
	}
	if s.peek() == '.' {
		s.i++
		if !s.digits() {
			return syntaxError(s.i, "want a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return syntaxError(s.i, "want a digit")
		}
	}
	return nil
}

func (s *syntax) digits() bool {
	start := s.i
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.i++
	}
	return s.i > start
}

// string checks a string and says whether it has escapes.
func (s *syntax) string() (escaped bool, err *Error) {
	if s.peek() != '"' {
		return false, syntaxError(s.i, "want a string")
	}
	s.i++
	for {
		n := plainBytes(s.b[s.i:])
		s.i += n
		switch c := s.peek(); {
		case c == '"':
			s.i++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		case n == windowBytes:
			s.i += plainWindows(s.b[s.i:])
		case s.i == len(s.b):
			return false, syntaxError(s.i, "the string does not end")
		case c < ' ':
			return false, syntaxError(s.i, "a control character in a string")
		default:
			r, size := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && size == 1 {
				return false, syntaxError(s.i, "invalid UTF-8")
			}
			s.i += size
		}
	}
}

func (s *syntax) escape() *Error {
	s.i++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		s.i++
		for range 4 {
			if !isHex(s.peek()) {
				return syntaxError(s.i, "want four hexadecimal digits")
			}
			s.i++
		}
		return nil
	default:
		return syntaxError(s.i, "an unknown escape")
	}
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// plainBytes counts the bytes at the start of b that mean nothing special inside a
// string: neither quote, backslash, control character nor part of a longer rune. It
// counts windowBytes at most. It looks at eight bytes at a time, because nearly all of a
// large message is such.
func plainBytes(b []byte) int {
	b = b[:min(len(b), windowBytes)]
	n := 0
	for len(b)-n >= 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote := w ^ ones*'"'
		backslash := w ^ ones*'\\'
		// The high bit of a byte is set where the byte is special; borrows can only
		// produce false hits above a true one, and the lowest is the one we use.
		special := (w | (w - ones*' ') | (quote - ones) | (backslash - ones)) & highs
		if special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
		n += 8
	}
	for n < len(b) && b[n] >= ' ' && b[n] < utf8.RuneSelf && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080

	// windowBytes is so large that the calls for a window cost little, and so small that a
	// window stays in the fastest cache.
	windowBytes = 512
)

// plainWindows counts the bytes of the windows at the start of b that have plain bytes only.
// It takes half of the time of plainBytes, because bytes.IndexByte looks at 32 bytes at a
// time.
func plainWindows(b []byte) (n int) {
	for ; len(b)-n >= windowBytes; n += windowBytes {
		window := b[n : n+windowBytes]
		if bytes.IndexByte(window, '"') >= 0 || bytes.IndexByte(window, '\\') >= 0 || hasControlOrHigh(window) {
			break
		}
	}
	return n
}

// hasControlOrHigh says whether a window has a control character, or a part of a longer
// rune.
func hasControlOrHigh(window []byte) bool {
	var special uint64
	for ; len(window) >= 32; window = window[32:] {
		w0, w1 := binary.LittleEndian.Uint64(window), binary.LittleEndian.Uint64(window[8:])
		w2, w3 := binary.LittleEndian.Uint64(window[16:]), binary.LittleEndian.Uint64(window[24:])
		special |= w0 | (w0 - ones*' ') | w1 | (w1 - ones*' ') | w2 | (w2 - ones*' ') | w3 | (w3 - ones*' ')
	}
	return special&highs != 0
}

// bitStack remembers for each level of nesting whether it is an object.
type bitStack struct {
	words [(maxDepth + 63) / 64]uint64
	depth int
}

func (s *bitStack) push(object bool) {
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	s.words[word] &^= bit
	if object {
		s.words[word] |= bit
	}
	s.depth++
}

func (s *bitStack) pop() { s.depth-- }

func (s *bitStack) inObject() bool {
	return s.depth > 0 && s.words[(s.depth-1)/64]&(1<<((s.depth-1)%64)) != 0
}
