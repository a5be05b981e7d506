# 500 processes, one after the other, that do nothing else.
count=0
while [ "$count" -lt 500 ]; do
    (:)
    count=$((count + 1))
done
echo "$count processes"
