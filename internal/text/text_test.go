package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ got, want string }{
		"as it is":             {Line("Wetter für Köln", 17), "Wetter für Köln"},
		"one too long":         {Line("Wetter für Köln!", 17), "Wetter für K…"},
		"terminal":             {Line("a\x1b[31mb\nc\x00", 20), "a [31mb c "},
		"lines stay":           {Block("a\n\tb\rc\u2028", 20), "a\n\tb c "},
		"invisible":            {Line("a\u200b\U000e0041b", 20), "a\ufffd\ufffdb"},
		"JSON":                 {Fit("<<<<", 15), "<<…"},
		"direction":            {Line("a\u202eb\u2066c\ufeff", 20), "a\ufffdb\ufffdc\ufffd"},
		"no UTF-8":             {Line("a\xff\xfeb", 20), "a\ufffd\ufffdb"},
		"no UTF-8, cut":        {Line("\xff\xff\xff\xff", 9), "\ufffd\ufffd…"},
		"no UTF-8, Cut":        {Cut("a\xff", 20), "a\ufffd"},
		"joined emoji":         {Line("👩‍🔧", 20), "👩‍🔧"},
		"Cut changes no other": {Cut("a\x1b\nb", 20), "a\x1b\nb"},
		"between bytes":        {Cut("ööö", 5), "ö…"},
		"no room at all":       {Cut("abcd", 3), "…"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %q, want %q", name, test.got, test.want)
		}
	}
}

func TestFirstSentence(t *testing.T) {
	for words, want := range map[string]string{
		"":                                       "",
		"Echoes a message":                       "Echoes a message",
		"Echoes a message.":                      "Echoes a message.",
		"Echoes a message. Use it often.":        "Echoes a message.",
		"  Echoes\n a   message. Use it.":        "Echoes a message.",
		"Echoes, e.g. for tests. Use it.":        "Echoes, e.g. for tests.",
		"Runs v1.2 of it! Really.":               "Runs v1.2 of it!",
		"Echo\r\n\r\nReturns what it was given.": "Echo",
		"Is it there? 1 means yes.":              "Is it there?",
		"Gets \x1b[31m it. Or not.":              "Gets  [31m it.",
		strings.Repeat("a", 2000) + ". More.":    strings.Repeat("a", 97) + "…",
	} {
		if got := FirstSentence(words, 100); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\xff\u202e. B", 7)
	f.Fuzz(func(t *testing.T, words string, most int) {
		most = 3 + int(uint(most)%64)
		for name, got := range map[string]string{
			"Cut": Cut(words, most), "Line": Line(words, most), "Block": Block(words, most), "FirstSentence": FirstSentence(words, most), "Fit": Fit(words, most),
		} {
			if encoded, err := json.Marshal(got); name == "Fit" && (err != nil || len(encoded)-2 > most) {
				t.Errorf("Fit of %q in %d bytes: %s", words, most, encoded)
			}
			if len(got) > most || !utf8.ValidString(got) {
				t.Errorf("%s of %q in %d bytes: %q", name, words, most, got)
			}
			if name != "Cut" && strings.ContainsAny(got, "\x00\x1b\r\u202e") || name == "Line" && strings.Contains(got, "\n") {
				t.Errorf("%s of %q: %q", name, words, got)
			}
		}
	})
}
