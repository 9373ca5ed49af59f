package config

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Auth says which MCPServers must authenticate callers, and by whose tokens they may.
type Auth struct {
	// require says which MCPServers must set spec.auth: None, All, or Selector (those in namespaces that
	// namespaceSelector matches). An MCPServer that must set it and does not is not accepted, and its adapters
	// refuse every client.
	Require AuthRequirement `json:"require"`

	// namespaceSelector matches namespaces by label. Set it only if require is Selector.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// allowedIssuers are the only token issuers that MCPServers may name, such as https://login.example.com or
	// https://login.example.com/realms/*. An empty list means all.
	AllowedIssuers []string `json:"allowedIssuers"`
}

// AuthRequirement says which MCPServers must have spec.auth.
type AuthRequirement string

const (
	// RequireNone leaves it to MCPServers.
	RequireNone AuthRequirement = "None"
	// RequireAll is for all of them.
	RequireAll AuthRequirement = "All"
	// RequireSelector is for those in selected namespaces.
	RequireSelector AuthRequirement = "Selector"
)

// RequiredIn selects the namespaces whose MCPServers must have spec.auth; nil if none must.
func (a Auth) RequiredIn() (labels.Selector, error) {
	switch a.Require {
	case RequireAll:
		return labels.Everything(), nil
	case RequireSelector:
		selector, err := metav1.LabelSelectorAsSelector(&a.NamespaceSelector)
		if err != nil {
			return nil, fmt.Errorf("read auth.namespaceSelector: %w", err)
		}
		return selector, nil
	case RequireNone:
	}
	return nil, nil
}

func (a Auth) validate() error {
	problems := []error{oneOf("auth.require", a.Require, RequireNone, RequireAll, RequireSelector)}
	isEmpty := len(a.NamespaceSelector.MatchLabels)+len(a.NamespaceSelector.MatchExpressions) == 0
	if a.Require == RequireSelector && isEmpty {
		problems = append(problems, errors.New("auth.namespaceSelector must select something with auth.require Selector: for all namespaces use All"))
	}
	if a.Require != RequireSelector && !isEmpty {
		problems = append(problems, fmt.Errorf("auth.namespaceSelector must not be set with auth.require %s: it would not be used", a.Require))
	}
	for _, problem := range metav1validation.ValidateLabelSelector(&a.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("auth", "namespaceSelector")) {
		problems = append(problems, problem)
	}
	for i, issuer := range a.AllowedIssuers {
		problems = append(problems, allowedIssuer(fmt.Sprintf("auth.allowedIssuers[%d]", i), issuer))
		if slices.Contains(a.AllowedIssuers[:i], issuer) {
			problems = append(problems, fmt.Errorf("auth.allowedIssuers[%d]: %s is there twice", i, issuer))
		}
	}
	return errors.Join(problems...)
}

// allowedIssuer checks what no issuer could match, and would keep the manager from fetching keys without
// a word.
func allowedIssuer(name, issuer string) error {
	parsed, err := url.Parse(strings.TrimSuffix(issuer, "/*"))
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || strings.ContainsAny(issuer, "?# ") ||
		strings.Contains(strings.TrimSuffix(issuer, "/*"), "*") {
		return fmt.Errorf("%s: %q is no issuer such as https://login.example.com or https://login.example.com/realms/*", name, issuer)
	}
	if plain := strings.TrimSuffix(parsed.Path, "/"); plain != "" && path.Clean(plain) != plain {
		return fmt.Errorf("%s: %q must not have dots or empty parts in its path: the manager asks no such issuer", name, issuer)
	}
	return nil
}
