// A producer and a member of a group by franz-go that log in, once.
//
// In: a way to get in, as one JSON argument. Out: a line of JSON with the values that were read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"coterie.test/clients/telling"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	records  = 10
	patience = 60 * time.Second
)

type way struct {
	Bootstrap   string `json:"bootstrap"`
	Protocol    string `json:"protocol"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Name        string `json:"name"`
}

func check(err error) {
	if err != nil {
		telling.Die(err)
	}
}

func (way way) mechanism() sasl.Mechanism {
	login := scram.Auth{User: way.User, Pass: way.Password}
	return map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: way.User, Pass: way.Password}.AsMechanism(),
		"SCRAM-SHA-256": login.AsSha256Mechanism(),
		"SCRAM-SHA-512": login.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: way.Token}.AsMechanism(),
	}[way.Mechanism]
}

func (way way) tls() *tls.Config {
	authority, err := os.ReadFile(way.CA)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: trusted}
	if way.Certificate != "" {
		own, err := tls.LoadX509KeyPair(way.Certificate, way.Key)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func main() {
	var way way
	check(json.Unmarshal([]byte(os.Args[1]), &way))
	options := []kgo.Opt{
		kgo.SeedBrokers(way.Bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup(way.Name),
		kgo.ConsumeTopics(way.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	}
	if strings.HasSuffix(way.Protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(way.tls()))
	}
	if way.Mechanism != "" {
		options = append(options, kgo.SASL(way.mechanism()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	within, end := context.WithTimeout(context.Background(), patience)
	defer end()
	for number := range records {
		record := &kgo.Record{Topic: way.Name, Value: fmt.Append(nil, number)}
		check(client.ProduceSync(within, record).FirstErr())
	}
	read := []string{}
	for len(read) < records {
		fetches := client.PollFetches(within)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { read = append(read, string(record.Value)) })
	}
	check(client.CommitUncommittedOffsets(within))
	check(json.NewEncoder(os.Stdout).Encode(read))
}
