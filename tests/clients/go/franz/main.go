// A member by franz-go.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"coterie.test/clients/telling"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// remote are the balancers that stand for an assignor of the broker in a group of KIP-848.
var remote = map[string]kgo.GroupBalancer{
	"range":   kgo.RangeBalancer(),
	"uniform": kgo.StickyBalancer(),
}

func tell(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		var places []telling.Place
		for topic, numbers := range partitions {
			for _, number := range numbers {
				places = append(places, telling.Place{Topic: topic, Partition: number})
			}
		}
		telling.SayPartitions(event, places)
	}
}

// protocol says which way the member joins, and who assigns.
func protocol(told telling.Orders) []kgo.Opt {
	if told.Protocol == "consumer" {
		return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(remote[told.Assignor])}
	}
	var chosen []kgo.GroupBalancer
	for _, name := range strings.Split(told.Assignor, ",") {
		chosen = append(chosen, balancers[name])
	}
	return []kgo.Opt{
		kgo.Balancers(chosen...),
		kgo.SessionTimeout(time.Duration(told.SessionTimeoutMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(told.HeartbeatIntervalMs) * time.Millisecond),
	}
}

func options(told telling.Orders) []kgo.Opt {
	given := append(protocol(told),
		kgo.SeedBrokers(told.Bootstrap),
		kgo.ConsumerGroup(told.Group),
		kgo.ClientID(told.ClientID),
		kgo.MetadataMaxAge(time.Duration(told.MetadataMaxAgeMs)*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("lost")),
	)
	if told.InstanceID != "" {
		given = append(given, kgo.InstanceID(told.InstanceID))
	}
	if told.Pattern != "" {
		return append(given, kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+told.Pattern))
	}
	return append(given, kgo.ConsumeTopics(told.Topics...))
}

// noting is a context for commits that carry a note.
func noting(told telling.Orders) context.Context {
	note := told.Note()
	return kgo.PreCommitFnContext(context.Background(), func(commit *kmsg.OffsetCommitRequest) error {
		for _, topic := range commit.Topics {
			for i := range topic.Partitions {
				topic.Partitions[i].Metadata = &note
			}
		}
		return nil
	})
}

func take(told telling.Orders, client *kgo.Client, fetches kgo.Fetches) {
	fetches.EachError(func(_ string, _ int32, err error) {
		if !errors.Is(err, context.Canceled) {
			telling.Say("error", map[string]any{"error": err.Error()})
		}
	})
	var records []telling.Record
	fetches.EachRecord(func(record *kgo.Record) {
		place := telling.Place{Topic: record.Topic, Partition: record.Partition}
		records = append(records, telling.Record{Place: place, Offset: record.Offset, Value: string(record.Value)})
	})
	if len(records) == 0 {
		return
	}
	telling.Say("consumed", map[string]any{"records": records})
	err := client.CommitRecords(noting(told), fetches.Records()...)
	var refused *kerr.Error
	if errors.As(err, &refused) {
		telling.Say("commit_failed", map[string]any{"error": refused.Message})
	} else if err != nil {
		telling.Die(err)
	}
}

func main() {
	told := telling.Told()
	client, err := kgo.NewClient(options(told)...)
	if err != nil {
		telling.Die(err)
	}
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	telling.Say("started", nil)
	for stopping.Err() == nil {
		take(told, client, client.PollFetches(stopping))
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	telling.Say("closed", nil)
	os.Exit(0)
}
