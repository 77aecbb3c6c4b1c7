"""A feed that has everything that must be cleaned: `RSS.format(n=...)`."""

RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>T</title>
<item><title>Old</title><link>http://x.example/old</link><pubDate>Mon, 01 Jan 2024 00:00:00 GMT</pubDate></item>
<item><title>New &amp; &lt;b&gt;bold&lt;/b&gt;</title><link>http://x.example/{n}</link>
<pubDate>Tue, 02 Jan 2024 00:00:0{n} GMT</pubDate>
<description>&lt;p onclick="x()"&gt;Hi &lt;img src="http://spy/"&gt;&lt;script&gt;bad()&lt;/script&gt;
&lt;a href="javascript:x()"&gt;a&lt;/a&gt; &lt;a href="http://ok.example/"&gt;b&lt;/a&gt;&lt;/p&gt;</description></item>
</channel></rss>"""
