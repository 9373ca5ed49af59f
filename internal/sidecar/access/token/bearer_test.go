package token

import (
	"strings"
	"testing"
)

func TestBearer(t *testing.T) {
	longest := strings.Repeat("x", MaxBytes)
	for name, test := range map[string]struct {
		authorization []string
		token         string
		problem       Problem
	}{
		"no header":                   {nil, "", None},
		"empty header":                {[]string{""}, "", None},
		"no token":                    {[]string{"Bearer"}, "", None},
		"no token after a blank":      {[]string{"Bearer "}, "", None},
		"no token after blanks":       {[]string{"bearer   "}, "", None},
		"token":                       {[]string{"Bearer a.b-c_d~e+f/g1"}, "a.b-c_d~e+f/g1", Presented},
		"token with padding":          {[]string{"Bearer abc=="}, "abc==", Presented},
		"scheme in lower case":        {[]string{"bearer abc"}, "abc", Presented},
		"scheme in upper case":        {[]string{"BEARER abc"}, "abc", Presented},
		"several blanks":              {[]string{"Bearer   abc"}, "abc", Presented},
		"longest token":               {[]string{"Bearer " + longest}, longest, Presented},
		"token is too long":           {[]string{"Bearer " + longest + "x"}, "", Invalid},
		"two headers":                 {[]string{"Bearer abc", "Bearer abc"}, "", Invalid},
		"two headers, one empty":      {[]string{"", "Bearer abc"}, "", Invalid},
		"two tokens":                  {[]string{"Bearer abc, Bearer def"}, "", Invalid},
		"two tokens without a scheme": {[]string{"Bearer abc def"}, "", Invalid},
		"other scheme":                {[]string{"Basic abc"}, "", Invalid},
		"no scheme":                   {[]string{"abc"}, "", Invalid},
		"scheme is longer":            {[]string{"Bearers abc"}, "", Invalid},
		"scheme without a blank":      {[]string{"Bearerabc"}, "", Invalid},
		"blank in front":              {[]string{" Bearer abc"}, "", Invalid},
		"blank behind":                {[]string{"Bearer abc "}, "", Invalid},
		"tab":                         {[]string{"Bearer\tabc"}, "", Invalid},
		"tab after a blank":           {[]string{"Bearer \tabc"}, "", Invalid},
		"padding in the middle":       {[]string{"Bearer a=b"}, "", Invalid},
		"only padding":                {[]string{"Bearer =="}, "", Invalid},
		"NUL":                         {[]string{"Bearer abc\x00"}, "", Invalid},
		"line end":                    {[]string{"Bearer abc\r\n"}, "", Invalid},
		"quotes":                      {[]string{`Bearer "abc"`}, "", Invalid},
		"letter beyond ASCII":         {[]string{"Bearer ä"}, "", Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			token, problem := Bearer(test.authorization)
			if token != test.token || problem != test.problem {
				t.Errorf("got %q and problem %d, want %q and %d", token, problem, test.token, test.problem)
			}
		})
	}
}

func TestBearerDoesNotAllocate(t *testing.T) {
	header := []string{"bearer " + strings.Repeat("x", 1000) + "="}
	if got := testing.AllocsPerRun(100, func() { Bearer(header) }); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}
