package rpc

import (
	"bytes"
	"unicode"
)

// picker goes through the members of one object and picks those with known names, of
// which there may be MostNames.
type picker struct {
	names  []string
	seen   uint8
	opened bool
}

// next reads up to the next member's value and returns the index of its name, or
// -1 if the name is not known. There are no more at the closing brace.
func (p *picker) next(s *syntax) (key int, more bool, err *Error) {
	name, escaped, more, err := p.name(s)
	if err != nil || !more {
		return 0, false, err
	}
	key, err = p.lookUp(name, escaped, s.i-len(name)-len(`""`))
	if err != nil {
		return 0, false, err
	}
	return key, true, s.colon()
}

// name reads the next member's name, and says whether it has escapes. There are no more at
// the closing brace.
func (p *picker) name(s *syntax) (name []byte, escaped, more bool, err *Error) {
	s.space()
	switch {
	case !p.opened:
		p.opened = true
		s.i++
		s.space()
		if s.peek() == '}' {
			s.i++
			return nil, false, false, nil
		}
	case s.peek() == '}':
		s.i++
		return nil, false, false, nil
	case s.peek() == ',':
		s.i++
		s.space()
	default:
		return nil, false, false, syntaxError(s.i, "want a comma or a closing bracket")
	}
	start := s.i
	escaped, err = s.string()
	if err != nil {
		return nil, false, false, err
	}
	return s.b[start+1 : s.i-1], escaped, true, nil
}

func (p *picker) lookUp(name []byte, escaped bool, offset int) (int, *Error) {
	for i, known := range p.names {
		if string(name) != known {
			continue
		}
		if p.seen&(1<<i) != 0 {
			return 0, invalid(offset, `the member "`+known+`" stands twice`)
		}
		p.seen |= 1 << i
		return i, nil
	}
	if len(name) > decodedBytes && (escaped || !isPlain(name)) {
		return 0, invalid(offset, "the name of a member has escapes, or other characters than those of ASCII, and is too long")
	}
	if known := p.lookAlike(name, escaped); known != "" {
		return 0, invalid(offset, `the member "`+known+`" is spelled in a way that parsers disagree on`)
	}
	return -1, nil
}

// lookAlike returns the known member that some decoders take a name for, or nothing. Some
// ignore case, and one takes "name\u0000" for "name".
func (p *picker) lookAlike(name []byte, escaped bool) string {
	if escaped {
		name = unquote(append(append([]byte{'"'}, name...), '"'))
	}
	plain := isPlain(name) // nearly always
	if !plain {
		name = visible(name)
	}
	for _, known := range p.names {
		if plain && len(name) != len(known) {
			continue
		}
		if bytes.EqualFold(name, []byte(known)) {
			return known
		}
	}
	return ""
}

// visible is a name without blanks at its ends, and without the characters anywhere that
// show nothing. The two letters that only have one case in common with i, and so do not
// fold to it, become one: decoders that ignore case by changing it take them for one.
func visible(name []byte) []byte {
	name = bytes.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		case r == 'İ' || r == 'ı':
			return 'i'
		}
		return r
	}, name)
	return bytes.TrimFunc(name, unicode.IsSpace)
}

// isPlain says whether a name has only characters of ASCII that show something. Whatever
// their case, it has as many as a name that is the same without regard to case.
func isPlain(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
