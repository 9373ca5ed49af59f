package report

import (
	"regexp"
	"strings"
)

// ordinary are words that commands and settings often have, and logs, too. They tell a reader nothing, and without them
// logs cannot be read. Words that are shorter than values need not be here.
var ordinary = setOf(
	"export", "source", "printf", "pipefail", "python", "python3", "dotnet", "server", "server.js", "index.js", "main.py", "/dev/null",
	"localhost", "127.0.0.1", "0.0.0.0", "streamable-http", "application/json", "text/event-stream", "c.utf-8", "en_us.utf-8",
	"default", "latest", "stable", "enabled", "disabled", "require", "verbose", "warning", "production", "development", "staging", "testing",
)

// program matches paths of programs. A token in base64 can begin with a slash, but has no dot and no such directory.
var program = regexp.MustCompile(`^(?:\./|/)?(?:[\w@.-]+/)*(?:s?bin/[\w.+-]+|[\w.-]+\.(?:[cm]?[jt]s|py|rb|sh|jar|dll))$`)

// flag matches a flag without a value. One dash may come with a value: -pPASSWORD.
var flag = regexp.MustCompile(`^--[a-z]+(?:-[a-z]+)*$`)

// isOrdinary says that a part of a value or a word of a command need not be removed: it is common, or it is a name that
// the report has anyway.
func (v *Values) isOrdinary(part string) bool {
	const longest = 256 // of a path that is worth a look
	if len(part) > longest {
		return false
	}
	return ordinary[strings.ToLower(part)] || v.names[part] || flag.MatchString(part) || program.MatchString(part)
}

// learnNames learns the names of an object and of its images.
func (v *Values) learnNames(found any) {
	switch found := found.(type) {
	case []any:
		for _, item := range found {
			v.learnNames(item)
		}
	case object:
		for key, value := range found {
			words, _ := value.(string)
			switch key {
			case "image":
				v.learnImage(words)
			case "metadata":
				metadata, _ := value.(object)
				for _, field := range []string{"name", "namespace"} {
					name, _ := metadata[field].(string)
					v.names[name] = true
				}
			}
			v.learnNames(value)
		}
	}
}

// learnImage learns the names that an image has: all of it, without digest and tag, and the last of its path.
func (v *Values) learnImage(image string) {
	tagged, _, _ := strings.Cut(image, "@")
	last := tagged[strings.LastIndexByte(tagged, '/')+1:]
	short, tag, _ := strings.Cut(last, ":")
	for _, name := range []string{image, tagged, strings.TrimSuffix(tagged, ":"+tag), last, short, tag} {
		v.names[name] = true
	}
}

func setOf(words ...string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, word := range words {
		set[word] = true
	}
	return set
}
