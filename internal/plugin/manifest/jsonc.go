package manifest

import "bytes"

// withoutComments blanks out comments and trailing commas, which VS Code and Cursor allow in their
// files. Line breaks stay, for the lines in messages.
func withoutComments(content []byte) []byte {
	plain := bytes.Clone(content)
	comma := -1 // the last comma, if only blanks and comments came after it
	for i := 0; i < len(plain); i++ {
		switch c := plain[i]; {
		case c == '"':
			i = endOfText(plain, i)
			comma = -1
		case bytes.HasPrefix(plain[i:], []byte("//")):
			i = blank(plain, i, "\n")
		case bytes.HasPrefix(plain[i:], []byte("/*")):
			i = blank(plain, i, "*/")
		case c == ',':
			comma = i
		case comma >= 0 && (c == '}' || c == ']'):
			plain[comma] = ' '
			comma = -1
		case !isBlank(c):
			comma = -1
		}
	}
	return plain
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// endOfText is where the closing quote of a text stands.
func endOfText(content []byte, at int) int {
	for at++; at < len(content) && content[at] != '"'; at++ {
		if content[at] == '\\' {
			at++
		}
	}
	return at
}

// blank replaces a comment by spaces, and returns its last index.
func blank(content []byte, at int, end string) int {
	last := len(content)
	const begin = len("//")
	if length := bytes.Index(content[at+begin:], []byte(end)); length >= 0 {
		last = at + begin + length + len(end)
	}
	for ; at < last; at++ {
		if content[at] != '\n' {
			content[at] = ' '
		}
	}
	return last - 1
}
