package manifest

import (
	"strconv"
	"strings"
)

// longestName is that of a DNS label: the Service of a server has the server's name.
const longestName = 63

// label makes a DNS label of a name: lower-case letters, digits and '-', with a letter first.
func label(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() > 2*longestName {
			break
		}
	}
	made := strings.Trim(b.String(), "-")
	if made == "" {
		return "mcp-server"
	}
	if made[0] < 'a' {
		made = "mcp-" + made
	}
	return cut(made, longestName)
}

func cut(name string, most int) string {
	return strings.TrimRight(name[:min(len(name), most)], "-")
}

// unique returns a name that no server of the namespace has yet, and takes it.
func (i *importer) unique(namespace, name string) string {
	made := name
	for number := 2; i.names[namespace+"/"+made]; number++ {
		suffix := "-" + strconv.Itoa(number)
		made = cut(name, longestName-len(suffix)) + suffix
	}
	i.names[namespace+"/"+made] = true
	return made
}
