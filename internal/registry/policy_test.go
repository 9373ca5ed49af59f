package registry

import (
	"strings"
	"testing"
)

func TestPolicy(t *testing.T) {
	some := Policy{Hosts: []string{"docker.io", "Registry.example:5000", "*.ecr.example", "*.zone.example:8443"}}
	for name, test := range map[string]struct {
		policy Policy
		image  string
		want   string // part of why it is not asked; empty if it is
	}{
		"by default":                {Policy{}, "10.0.0.1:6443/x/y", ""},
		"disabled":                  {Policy{Disabled: true}, "docker.io/x/y", "registry.mode"},
		"disabled, with hosts":      {Policy{Disabled: true, Hosts: []string{"docker.io"}}, "docker.io/x/y", "registry.mode"},
		"Docker Hub":                {some, "node:22", ""},
		"Docker Hub by its name":    {some, "docker.io/library/node:22", ""},
		"Docker Hub, the other way": {Policy{Hosts: []string{"index.docker.io"}}, "node:22", ""},
		"host and port":             {some, "registry.example:5000/x/y@sha256:" + strings.Repeat("0", 64), ""},
		"another port":              {some, "registry.example:22/x/y", "registry registry.example:22"},
		"no port":                   {some, "registry.example/x/y", "registry.allowedHosts"},
		"below a name":              {some, "123.ecr.example/x/y", ""},
		"far below a name":          {some, "123.eu.ecr.example/x/y", ""},
		"the name itself":           {some, "ecr.example/x/y", "registry.allowedHosts"},
		"a name that ends alike":    {some, "evilecr.example/x/y", "registry.allowedHosts"},
		"below a name, a port":      {some, "123.ecr.example:22/x/y", "registry.allowedHosts"},
		"below a name with a port":  {some, "a.zone.example:8443/x/y", ""},
		"an address":                {some, "10.0.0.1:6443/x/y", "registry 10.0.0.1:6443"},
		"no reference":              {some, "://", "registry.allowedHosts"},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.policy.Forbids(test.image)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}
