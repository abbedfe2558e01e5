-- c00 | all hits
SELECT COUNT(*) AS n FROM hits;

-- c01 | hits from advertisements
SELECT COUNT(*) AS n FROM hits WHERE AdvEngineID <> 0;

-- c02 | three aggregates
SELECT SUM(AdvEngineID) AS a, COUNT(*) AS n, AVG(ResolutionWidth) AS w FROM hits;

-- c03 | the average user
-- refuse: computes with the id of a person
SELECT AVG(UserID) AS u FROM hits;

-- c04 | users
SELECT COUNT(DISTINCT UserID) AS u FROM hits;

-- c05 | search phrases
SELECT COUNT(DISTINCT SearchPhrase) AS p FROM hits;

-- c06 | first and last day
SELECT MIN(EventDate) AS a, MAX(EventDate) AS b FROM hits;

-- c07 | advertisers
SELECT AdvEngineID, COUNT(*) AS n FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID ORDER BY COUNT(*) DESC;

-- c08 | regions by users
SELECT RegionID, COUNT(DISTINCT UserID) AS u FROM hits GROUP BY RegionID ORDER BY u DESC LIMIT 10;

-- c09 | regions
SELECT RegionID, SUM(AdvEngineID) AS a, COUNT(*) AS c, AVG(ResolutionWidth) AS w, COUNT(DISTINCT UserID) AS u
FROM hits GROUP BY RegionID ORDER BY c DESC LIMIT 10;

-- c10 | phone models
SELECT MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' GROUP BY MobilePhoneModel ORDER BY u DESC LIMIT 10;

-- c11 | phones and models
SELECT MobilePhone, MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> ''
GROUP BY MobilePhone, MobilePhoneModel ORDER BY u DESC LIMIT 10;

-- c12 | phrases
SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC LIMIT 10;

-- c13 | phrases by users
SELECT SearchPhrase, COUNT(DISTINCT UserID) AS u FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY u DESC LIMIT 10;

-- c14 | engines and phrases
SELECT SearchEngineID, SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchEngineID, SearchPhrase ORDER BY c DESC LIMIT 10;

-- c15 | busiest users
-- refuse: groups by the person
SELECT UserID, COUNT(*) AS n FROM hits GROUP BY UserID ORDER BY COUNT(*) DESC LIMIT 10;

-- c16 | busiest users and phrases
-- refuse: groups by the person
SELECT UserID, SearchPhrase, COUNT(*) AS n FROM hits GROUP BY UserID, SearchPhrase ORDER BY COUNT(*) DESC LIMIT 10;

-- c17 | users and phrases
-- refuse: groups by the person
SELECT UserID, SearchPhrase, COUNT(*) AS n FROM hits GROUP BY UserID, SearchPhrase LIMIT 10;

-- c18 | users, minutes and phrases
-- refuse: groups by the person
SELECT UserID, EXTRACT(MINUTE FROM EventTime) AS m, SearchPhrase, COUNT(*) AS n FROM hits GROUP BY UserID, m, SearchPhrase ORDER BY COUNT(*) DESC LIMIT 10;

-- c19 | one user
-- refuse: shows rows of single people
SELECT UserID FROM hits WHERE UserID = 435090932899640449;

-- c20 | urls of a search engine
SELECT COUNT(*) AS n FROM hits WHERE URL LIKE '%google%';

-- c21 | a url of each phrase
-- refuse: the least text of all is somebody's value
SELECT SearchPhrase, MIN(URL) AS url, COUNT(*) AS c FROM hits WHERE URL LIKE '%google%' AND SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC LIMIT 10;

-- c22 | a title of each phrase
-- refuse: the least text of all is somebody's value
SELECT SearchPhrase, MIN(URL) AS url, MIN(Title) AS title, COUNT(*) AS c, COUNT(DISTINCT UserID) AS u FROM hits
WHERE Title LIKE '%Google%' AND URL NOT LIKE '%.google.%' AND SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC LIMIT 10;

-- c23 | rows of a search engine
-- refuse: shows rows of single people
SELECT * FROM hits WHERE URL LIKE '%google%' ORDER BY EventTime LIMIT 10;

-- c24 | first phrases
-- refuse: shows rows of single people
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime LIMIT 10;

-- c25 | phrases in order
-- refuse: shows rows of single people
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10;

-- c26 | phrases in order of time
-- refuse: shows rows of single people
SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase LIMIT 10;

-- c27 | length of urls by counter
SELECT CounterID, AVG(LENGTH(URL)) AS l, COUNT(*) AS c FROM hits WHERE URL <> '' GROUP BY CounterID HAVING COUNT(*) > 1000 ORDER BY l DESC LIMIT 25;

-- c28 | referring hosts
SELECT REGEXP_REPLACE(Referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS k, AVG(LENGTH(Referer)) AS l, COUNT(*) AS c
FROM hits WHERE Referer <> '' GROUP BY k HAVING COUNT(*) > 1000 ORDER BY l DESC LIMIT 25;

-- c29 | many sums
SELECT SUM(ResolutionWidth) AS s0, SUM(ResolutionWidth + 1) AS s1, SUM(ResolutionWidth + 2) AS s2, SUM(ResolutionWidth + 3) AS s3,
       SUM(ResolutionWidth + 4) AS s4, SUM(ResolutionWidth + 5) AS s5, SUM(ResolutionWidth + 6) AS s6, SUM(ResolutionWidth + 7) AS s7 FROM hits;

-- c30 | engines and addresses
SELECT SearchEngineID, ClientIP, COUNT(*) AS c, SUM(IsRefresh) AS r, AVG(ResolutionWidth) AS w FROM hits WHERE SearchPhrase <> ''
GROUP BY SearchEngineID, ClientIP ORDER BY c DESC LIMIT 10;

-- c31 | hits and addresses
-- refuse: each hit is one person's
SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh) AS r, AVG(ResolutionWidth) AS w FROM hits WHERE SearchPhrase <> ''
GROUP BY WatchID, ClientIP ORDER BY c DESC LIMIT 10;

-- c32 | all hits and addresses
-- refuse: each hit is one person's
SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh) AS r, AVG(ResolutionWidth) AS w FROM hits GROUP BY WatchID, ClientIP ORDER BY c DESC LIMIT 10;

-- c33 | urls
SELECT URL, COUNT(*) AS c FROM hits GROUP BY URL ORDER BY c DESC LIMIT 10;

-- c34 | urls and a one
SELECT 1 AS one, URL, COUNT(*) AS c FROM hits GROUP BY 1, URL ORDER BY c DESC LIMIT 10;

-- c35 | addresses and their neighbours
SELECT ClientIP, ClientIP - 1 AS a, ClientIP - 2 AS b, ClientIP - 3 AS d, COUNT(*) AS c FROM hits
GROUP BY ClientIP, ClientIP - 1, ClientIP - 2, ClientIP - 3 ORDER BY c DESC LIMIT 10;

-- c36 | pages of a counter
SELECT URL, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31'
AND DontCountHits = 0 AND IsRefresh = 0 AND URL <> '' GROUP BY URL ORDER BY PageViews DESC LIMIT 10;

-- c37 | titles of a counter
SELECT Title, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31'
AND DontCountHits = 0 AND IsRefresh = 0 AND Title <> '' GROUP BY Title ORDER BY PageViews DESC LIMIT 10;

-- c38 | links of a counter
SELECT URL, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31'
AND IsRefresh = 0 AND IsLink <> 0 AND IsDownload = 0 GROUP BY URL ORDER BY PageViews DESC LIMIT 10 OFFSET 5;

-- c39 | sources of traffic
SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN (SearchEngineID = 0 AND AdvEngineID = 0) THEN Referer ELSE '' END AS Src,
       URL AS Dst, COUNT(*) AS PageViews
FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31' AND IsRefresh = 0
GROUP BY TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst ORDER BY PageViews DESC LIMIT 10 OFFSET 10;

-- c40 | hashes of urls
SELECT URLHash, EventDate, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01' AND EventDate <= '2013-07-31'
AND IsRefresh = 0 AND TraficSourceID IN (-1, 6) AND RefererHash = 5 GROUP BY URLHash, EventDate ORDER BY PageViews DESC LIMIT 10 OFFSET 10;

-- c41 | windows of clients
SELECT WindowClientWidth, WindowClientHeight, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-01'
AND EventDate <= '2013-07-31' AND IsRefresh = 0 AND DontCountHits = 0 AND URLHash = 3007
GROUP BY WindowClientWidth, WindowClientHeight ORDER BY PageViews DESC LIMIT 10 OFFSET 3;

-- c42 | minutes of two days
SELECT DATE_TRUNC('minute', EventTime) AS M, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= '2013-07-14'
AND EventDate <= '2013-07-15' AND IsRefresh = 0 AND DontCountHits = 0
GROUP BY DATE_TRUNC('minute', EventTime) ORDER BY DATE_TRUNC('minute', EventTime) LIMIT 10 OFFSET 20;
