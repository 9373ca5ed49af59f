package bearer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// issuer stands in for an API server, whose tokens are numbered. The real one is in test/integration/plugin.
type issuer struct {
	mu     sync.Mutex
	err    error
	issued int
	asked  []string
}

func (i *issuer) client() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, part string, account, object client.Object, _ ...client.SubResourceCreateOption) error {
			request := object.(*authenticationv1.TokenRequest)
			time.Sleep(100 * time.Millisecond) // of the bubble: others ask meanwhile
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.err != nil {
				return i.err
			}
			i.issued++
			i.asked = append(i.asked, fmt.Sprint(part, " ", client.ObjectKeyFromObject(account), " ", request.Spec.Audiences, " ", *request.Spec.ExpirationSeconds))
			request.Status.Token = fmt.Sprint("token-", i.issued)
			request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
			return nil
		},
	})
}

func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &issuer{}
		account := NewAccount(api.client(), types.NamespacedName{Namespace: "agents", Name: "triage"}, "http://tickets.support.svc/mcp")
		want := func(when, token string) {
			t.Helper()
			if got, err := account.Token(t.Context()); err != nil || got != token {
				t.Errorf("%s: %q, %v, want %q", when, got, err, token)
			}
		}
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { want("at first, for many", "token-1") })
		}
		asking.Wait()
		if diff := cmp.Diff([]string{"token agents/triage [http://tickets.support.svc/mcp] 600"}, api.asked); diff != "" {
			t.Errorf("the API server was asked for (-want +got):\n%s", diff)
		}
		time.Sleep(8*time.Minute - time.Second)
		want("early enough before its end", "token-1")
		time.Sleep(2 * time.Second)
		want("two minutes before its end", "token-2")

		account.Refused("token-1")
		want("after an older one was refused", "token-2")
		account.Refused("token-2")
		want("after it was refused", "token-3")

		api.err = errors.New("the API server is away")
		time.Sleep(9 * time.Minute)
		want("while the API server is away", "token-3")
		time.Sleep(time.Minute)
		if got, err := account.Token(t.Context()); !errors.Is(err, api.err) || got != "" {
			t.Errorf("after its end: %q, %v", got, err)
		}
		api.err = nil
		want("when the API server is back", "token-4")
	})
}

// A request that is given up does not wait for one that the API server is late with.
func TestAccountGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := NewAccount((&issuer{}).client(), types.NamespacedName{Namespace: "agents", Name: "triage"}, "x")
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() { _, _ = account.Token(t.Context()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if got, err := account.Token(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
