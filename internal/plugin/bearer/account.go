package bearer

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Lifetime is that of the tokens that the package asks for. The API server issues none that is shorter.
	Lifetime = 10 * time.Minute
	// renewal is how long before its end a token is replaced. The clocks of the cluster may be apart, and a
	// request may wait for a pod.
	renewal = 2 * time.Minute
	// issueTime is how long the API server has to issue a token.
	issueTime = 10 * time.Second
)

// Account is a ServiceAccount, whose tokens the API server issues. It replaces a token before it expires.
type Account struct {
	api      client.Client
	name     types.NamespacedName
	audience string

	turn    chan struct{} // has room for the one that looks at the token
	token   string
	expires time.Time
}

// NewAccount returns a ServiceAccount whose tokens are for an audience.
func NewAccount(api client.Client, name types.NamespacedName, audience string) *Account {
	return &Account{api: api, name: name, audience: audience, turn: make(chan struct{}, 1)}
}

// String implements Source. It is the name of the account in rules and audits.
func (a *Account) String() string {
	return "system:serviceaccount:" + a.name.Namespace + ":" + a.name.Name
}

// Token implements Source.
func (a *Account) Token(ctx context.Context) (string, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if time.Until(a.expires) > renewal {
		return a.token, nil
	}
	if err := a.issue(ctx); err != nil && time.Until(a.expires) <= 0 {
		return "", err
	}
	return a.token, nil // perhaps the one before, as long as it is valid
}

// issue has the API server issue a token.
func (a *Account) issue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, issueTime)
	defer cancel()
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = a.name.Namespace, a.name.Name
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{a.audience}, ExpirationSeconds: new(int64(Lifetime / time.Second)),
	}}
	if err := a.api.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("issue a token of ServiceAccount %s: %w", a.name, err)
	}
	a.token, a.expires = request.Status.Token, request.Status.ExpirationTimestamp.Time
	return nil
}

// Refused implements Source: the next request gets another token. The cluster may have changed its keys.
func (a *Account) Refused(token string) {
	a.turn <- struct{}{}
	defer func() { <-a.turn }()
	if a.token == token {
		a.expires = time.Time{}
	}
}
