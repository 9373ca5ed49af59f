package rpc

import "bytes"

// IDKey is what all spellings of one id or progress token have in common: a peer that
// echoes a string may escape other characters in it than the one that sent it. Values
// that are alike but for their type stay apart (J-02).
//
// It is the id itself unless that has escapes, so finding it in a map allocates nothing.
func IDKey(id []byte) []byte {
	if len(id) == 0 || id[0] != '"' || bytes.IndexByte(id, '\\') < 0 {
		return id
	}
	return append(append([]byte{'"'}, unquote(id)...), '"')
}

// SameID says whether two ids are the same, in any spelling. An absent id is the same as
// no other, not even as another absent one.
func SameID(a, b []byte) bool {
	return len(a) > 0 && (bytes.Equal(a, b) || bytes.Equal(IDKey(a), IDKey(b)))
}
