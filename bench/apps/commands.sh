# 500 processes, one after the other, each of which starts a program.
count=0
while [ "$count" -lt 500 ]; do
    /usr/bin/true
    count=$((count + 1))
done
echo "$count programs"
